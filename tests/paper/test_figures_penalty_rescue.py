"""Figure `penalty_rescue`: which runs and moments it reads, which numbers it draws, and that its words follow them."""

import subprocess
import sys

import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot, write_record
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pages import assert_clear, texts
from penalty_runs import ACCURACY, DEEP, EPOCHS, FLAT, FRESH, SEEDS, make_run, make_study

from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import FIGURES, save_figure
from creditscope.paper.figures._penalty import KINDS, select_rescue
from creditscope.paper.figures._penalty_bars import COLUMNS, METRICS
from creditscope.paper.figures.penalty_rescue import describe, plot_penalty_rescue
from creditscope.paper.studies.penalty_rescue import STRONG, WEAK, penalty_rescue

pytestmark = pytest.mark.slow


def panel(fig: Figure, letter: str) -> Axes:
    return next(ax for ax in fig.axes if ax.get_label() == letter)


def curve(fig: Figure, gid: str, letter: str = "A") -> np.ndarray:
    (line,) = [line for line in panel(fig, letter).lines if line.get_gid() == gid]
    return np.array(line.get_ydata(), dtype=float)


def bar(fig: Figure, letter: str, gid: str) -> float:
    (found,) = [patch for patch in panel(fig, letter).patches if patch.get_gid() == gid]
    return found.get_height()


def gaps(fig: Figure, letter: str) -> set[str]:
    return {
        str(line.get_gid()).removesuffix(" gap")
        for line in panel(fig, letter).lines
        if str(line.get_gid()).endswith(" gap")
    }


class TestNumbers:
    def test_is_registered(self):
        assert FIGURES.get("penalty_rescue") is plot_penalty_rescue
        assert "penalty" in FIGURES.summary("penalty_rescue")

    def test_trajectories_are_means_of_log10_on_shared_epochs(self):
        """Thinned records: one seed has fewer epochs."""
        runs = [make_run("dfa", 1, epochs=(0, 10, 15, 20, EPOCHS)), make_run("dfa", 2), make_run("dfa", 3)]
        low = [make_run("strong", seed, taps={"g_norm": 10.0**-seed}) for seed in SEEDS]
        fig = plot_penalty_rescue([*runs, *low, *make_study(without=("dfa", "strong"))])
        assert curve(fig, "dfa h_norm") == pytest.approx([10, 100, 1000, 1e4])
        assert curve(fig, "dfa g_norm", "A right") == pytest.approx([0.1, 1e-3, 1e-5, 1e-7])
        assert curve(fig, "strong g_norm", "A right") == pytest.approx([1e-2] * 4)
        assert curve(fig, "floor", "A right") == pytest.approx([PUBLISHED_FLOOR] * 2)
        said = texts(fig)
        assert said.count("floor") == said.count("published floor") > 0  # the key names the line, nothing in the panel
        assert "(10⁻⁷·N, N = 128)" in said
        assert "‖h₄‖ +3.0 ± 0 under DFA and 0.0 ± 0 under DFA with λ = 10⁻²" in said
        assert "3 of 3 seeds (first at epoch 20) under DFA and 0 of 3 seeds" in said

    def test_states_are_drawn_above_gradients(self):
        fig = plot_penalty_rescue(make_study())
        left, right = panel(fig, "A"), panel(fig, "A right")
        places = {}
        for ax, name in ((left, "h_norm"), (right, "g_norm")):
            y = np.concatenate([line.get_ydata() for line in ax.lines if str(line.get_gid()).endswith(name)])
            places[name] = ax.transData.transform(np.column_stack([np.zeros_like(y), y]))[:, 1]
        assert places["h_norm"].min() > places["g_norm"].max()

    def test_bars_of_the_rule_are_deep_means_with_sd_over_seeds(self):
        fig = plot_penalty_rescue(make_study(early={"at": {3: FLAT, 2: {"rho": (0.9, 0.9, 0.1, 0.2, 0.6)}}}))
        for key in ("early", "weak", "strong"):
            assert bar(fig, "B", f"cos {key}") == pytest.approx(DEEP[key])
            assert curve(fig, f"cos {key} sd", "B") == pytest.approx([DEEP[key] - 0.01, DEEP[key] + 0.01])
        assert bar(fig, "B", "rho strong") == pytest.approx(0.075)
        assert bar(fig, "B", "rho early") == pytest.approx(0.3)
        assert bar(fig, "B", "descent weak") == pytest.approx(0.05)

    def test_null_is_over_draws_and_seeds(self):
        """Simulated draws: the sd of the deep mean over seeds and draws, with feedback independent between taps."""
        rng = np.random.default_rng(0)
        draws = rng.normal([[[0.1]], [[0.2]], [[0.3]]], [0, 0, 0.1, 0.2, 0.3], size=(3, 20_000, 5))
        runs = []
        for seed, own in zip(SEEDS, draws, strict=True):
            taps = {"fresh_cos": tuple(own.mean(0)), "fresh_sd": tuple(own.std(0, ddof=1))}
            runs.append(make_run("early", seed, at={5: taps}))
        fig = plot_penalty_rescue([*runs, *make_study(without=("early",))])
        deep = draws[:, :, 2:].mean(2)
        expected = np.sqrt(deep.var(axis=1).mean() + deep.mean(1).var(ddof=1))
        low, high = curve(fig, "cos null sd", "B")
        assert bar(fig, "B", "cos null") == pytest.approx(deep.mean())
        assert (high - low) / 2 == pytest.approx(expected, rel=0.02)

    def test_control_is_measured_where_it_is_not_a_definition(self):
        fig = plot_penalty_rescue(make_study(early={"at": {5: {"rho_exact": (0, 0, 0.9, 0.8, 0.7)}}}))
        assert [bar(fig, "B", f"{metric.own} exact") for metric in METRICS] == pytest.approx([1.0, 0.8, 1.0])
        hollow = {p.get_gid() for p in panel(fig, "B").patches if p.get_facecolor()[:3] == (1, 1, 1)}
        assert hollow == {"cos exact", "descent exact"}

    def test_accuracies_dots_and_baselines(self):
        fig = plot_penalty_rescue(make_study())
        for key in ("bp", "bp strong", "dfa", "strong"):
            assert bar(fig, "C", key) == pytest.approx(ACCURACY[key])
            assert curve(fig, f"{key} seeds", "C") == pytest.approx(ACCURACY[key] + np.array([-0.002, 0, 0.002]))
        for key in ("frozen dfa", "frozen bp"):
            assert curve(fig, key, "C") == pytest.approx([ACCURACY[key]] * 2)

    def test_the_table(self):
        said = describe(make_study())
        (row,) = [line for line in said.splitlines() if line.split("  ")[0].strip() == "DFA with λ\u00a0=\u00a010⁻²"]
        assert "0.150 ± 0.010" in row
        assert "0.360 ± 0.002" in row
        assert all(label in said for label in COLUMNS.values())


class TestGaps:
    @pytest.mark.parametrize("key", KINDS)
    def test_a_missing_condition_is_a_marked_gap(self, key):
        fig = plot_penalty_rescue(make_study(without=(key,) if key != "dfa" else ("dfa", "early")))
        said = texts(fig)
        assert f"{KINDS[key].label}: not on record.".replace("\u00a0", " ") in said
        in_b = {"weak": {"weak"}, "strong": {"strong"}}.get(key, set())
        in_b = {"early", "null", "exact"} if key in ("early", "dfa") else in_b
        assert gaps(fig, "B") == {f"{metric.own} {column}" for metric in METRICS for column in in_b}
        assert ("not measured" in said) == bool(in_b)
        assert gaps(fig, "C") == {key} & {"bp", "bp strong", "dfa", "strong"}
        lines = {str(line.get_gid()) for line in panel(fig, "A").lines}
        assert ("strong h_norm" in lines) == (key != "strong")
        assert_clear(fig)
        assert "not on record" in describe(make_study(without=(key,) if key != "dfa" else ("dfa", "early")))

    @pytest.mark.parametrize("only", ["weak", "early"])
    def test_one_condition_alone_is_drawn(self, only):
        fig = plot_penalty_rescue(make_study(without=[key for key in KINDS if key != only]))
        assert "BP with λ = 10⁻²: not on record." in texts(fig)
        assert_clear(fig)

    def test_the_early_record_is_the_run_of_vanilla_dfa_too(self):
        fig = plot_penalty_rescue(make_study(without=("dfa",)))
        assert bar(fig, "C", "dfa") == pytest.approx(ACCURACY["dfa"])

    @pytest.mark.parametrize(
        ("key", "field", "said"),
        [
            ("strong", "rho", "DFA with λ = 10⁻²: no value of ρ for 3 of 3 seeds."),
            ("early", "fresh_descent", "early DFA: no value of Descent of fresh feedback for 3 of 3 seeds."),
            ("early", "rho_exact", "early DFA: no value of ρ of the gradient for 3 of 3 seeds."),
        ],
    )
    def test_a_missing_measure_is_a_marked_gap(self, key, field, said):
        fig = plot_penalty_rescue(make_study(**{key: {"taps": {field: ()}}}))
        column = {"rho": "rho strong", "fresh_descent": "descent null", "rho_exact": "rho exact"}[field]
        assert gaps(fig, "B") == {column}
        assert said in texts(fig)
        assert "not measured" in texts(fig)

    def test_a_tap_without_value_is_no_deep_mean(self):
        taps = {"cos": (0.9, 0.8, 0.1, None, 0.1)}
        records = [
            *make_study(without=("weak",)),
            make_run("weak", 1, taps=taps),
            make_run("weak", 2),
            make_run("weak", 3),
        ]
        fig = plot_penalty_rescue(records)
        assert bar(fig, "B", "cos weak") == pytest.approx(DEEP["weak"] + 0.005)
        assert "DFA with λ = 10⁻⁴: no value of Cosine for 1 of 3 seeds." in texts(fig)

    def test_records_of_an_earlier_version(self):
        """No ρ of the gradient, no null of ρ and descent."""
        gone = dict.fromkeys(FRESH, ())
        fig = plot_penalty_rescue(make_study(**{key: {"taps": gone} for key in ("early", "weak", "strong")}))
        assert "ρ has no null on record. Descent has no null on record." in texts(fig)
        assert_clear(fig)

    def test_diverged_runs_are_said(self):
        some = [*make_study(without=("weak",)), *make_study(without=[k for k in KINDS if k != "weak"], seeds=(1, 2))]
        fig = plot_penalty_rescue([*some, make_run("weak", 3, diverged=7)])
        said = texts(fig)
        assert "DFA with λ = 10⁻⁴, seed 3: diverged at epoch 7, left out." in said
        assert "Left out, as not every condition has it: seed 3." in said
        assert "seeds 1, 2 (n = 2)" in said
        every = texts(plot_penalty_rescue(make_study(weak={"diverged": 7})))
        assert "DFA with λ = 10⁻⁴: diverged" in every
        assert "seeds 1, 2, 3 (n = 3)" in every

    def test_a_condition_on_other_seeds_is_a_gap(self):
        records = [*make_study(without=("bp",)), make_run("bp", 9)]
        said = texts(plot_penalty_rescue(records))
        assert "plain BP: no seed that the others have." in said
        assert "seeds 1, 2, 3 (n = 3)" in said


class TestSelection:
    def test_the_study_gives_every_condition(self):
        runs = penalty_rescue("paper").runs
        found = {(r["rule"], r.get("penalty", 0.0), r.get("frozen", False), r.get("tier") == "full") for r in runs}
        assert found == {(k.rule, k.penalty, k.frozen, k.early) for k in KINDS.values()}

    def test_the_trajectory_is_not_the_early_record(self):
        """Both have seven snapshots at scale demo."""
        chosen = select_rescue(make_study(dfa={"epochs": (0, 5, 10, 15, 20, 25, EPOCHS)}))
        assert chosen.trajectory("dfa", "h_norm")[0].tolist() == [0, 5, 10, 15, 20, 25, 30]
        assert [s.epoch for s in chosen.runs["early"][0].snapshots] == [0, 1, 2, 3, 4, 5, EPOCHS]

    def test_one_credit_norm_is_drawn(self):
        batch = [
            make_run(key, s, credit_norm="batch", accuracy=0.5) for key in ("dfa", "early", "strong") for s in SEEDS
        ]
        records = [*make_study(), *batch]
        assert bar(plot_penalty_rescue(records), "C", "strong") == pytest.approx(0.36)
        other = plot_penalty_rescue(records, credit_norm="batch")
        assert bar(other, "C", "strong") == pytest.approx(0.5)
        assert bar(other, "C", "bp") == pytest.approx(0.58)
        assert "credit norm batch" in texts(other)
        assert "DFA with λ = 10⁻⁴: not on record." in texts(other)
        with pytest.raises(
            CreditscopeError, match="Expected records of dfa with credit norm none, but got credit norm batch"
        ):
            plot_penalty_rescue(batch)

    @pytest.mark.parametrize("changes", [{"net_options": {"depth": 4, "width": 9}}, {"lr": 0.1}])
    def test_mixed_settings_are_refused(self, changes):
        with pytest.raises(CreditscopeError, match="Expected records of one setting, but they differ in"):
            plot_penalty_rescue(make_study(bp=changes))

    def test_other_penalties_are_not_drawn(self):
        extra = make_record(rule="dfa", penalty=0.1, epochs=EPOCHS, seed=1, net_options={"depth": 4, "width": 8})
        assert describe([*make_study(), extra]) == describe(make_study())
        assert {kind.penalty for kind in KINDS.values()} == {0.0, WEAK, STRONG}

    def test_nothing_to_draw_is_refused(self):
        with pytest.raises(CreditscopeError, match="but got none of dfa among 1 records"):
            plot_penalty_rescue([make_record(rule="bp")])
        with pytest.raises(CreditscopeError, match="got diverged or unfinished ones only"):
            plot_penalty_rescue([make_run("dfa", 1, diverged=3)])
        shallow = make_record(facts={"depth": 1}, snapshots=[make_snapshot(make_facts(depth=1))])
        with pytest.raises(CreditscopeError, match="Expected a net of at least two blocks"):
            plot_penalty_rescue([shallow])


def test_no_text_leaves_the_page_or_covers_another(tmp_path):
    fig = plot_penalty_rescue(make_study(seeds=tuple(range(1, 11)), early={"at": {2: FLAT}}))
    paths = save_figure(fig, tmp_path, "penalty_rescue")
    assert all(path.stat().st_size > 10_000 for path in paths)
    assert_clear(fig)


def test_the_command_draws_stored_records_without_torch(tmp_path):
    wanted = {"data_version": "mnist1d-0.0.2-seed42", "net_options": {"depth": 4, "width": 128, "terminal_norm": True}}
    for key in ("dfa", "early", "strong"):
        measured = {"snapshot_at": "1,2,3,4,5", "snapshot_every": 0} if key == "early" else {"snapshot_every": 5}
        write_record(tmp_path / "records", make_run(key, 42, **wanted, **measured))
    code = f"""
import sys
from creditscope.cli import main
main(["figure", "penalty_rescue", "--records", {str(tmp_path / "records")!r}, "--out", {str(tmp_path)!r}, "--no-train"])
assert "torch" not in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "21 of 24 runs are not on record" in done.stdout
    assert "deep cosine" in done.stdout
    assert (tmp_path / "penalty_rescue.pdf").exists()
