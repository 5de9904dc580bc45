"""Trajectories draw and say what the records hold: figures `snapshot_resmlp`, `snapshot_vit`, `cross_architecture`."""

import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from builders import make_record, write_record
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from pages import assert_clear, texts
from trajectory_runs import EPOCHS, SEEDS, grow, make_cross, make_resmlp, make_run, with_growth

from creditscope.auditing import audit
from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import FIGURES, cross_architecture, snapshot_resmlp, snapshot_vit
from creditscope.paper.figures.cross_architecture import plot_cross_architecture
from creditscope.paper.figures.snapshot_resmlp import plot_snapshot_resmlp
from creditscope.paper.figures.snapshot_vit import plot_snapshot_vit
from creditscope.paper.reproduction._readers import first_epoch, grows
from creditscope.record import Record, RuleFacts

pytestmark = pytest.mark.slow


def panel(fig: Figure, label: str) -> Axes:
    return next(ax for ax in fig.axes if ax.get_label() == label)


def drawn(fig: Figure, label: str, gid: str) -> tuple[np.ndarray, np.ndarray]:
    (line,) = [line for line in panel(fig, label).lines if line.get_gid() == gid]
    return np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)


def band(fig: Figure, label: str, rule: str) -> np.ndarray:
    """(corners, 2) of a band."""
    (found,) = [c for c in panel(fig, label).collections if c.get_gid() == f"{rule} band"]
    return np.concatenate([path.vertices for path in found.get_paths()]) if found.get_paths() else np.empty((0, 2))


def said_of(records: Sequence[Record]) -> str:
    """The sentences of `snapshot_resmlp`, which text and figure share."""
    return " ".join(snapshot_resmlp.describe(records).split())


def cross_said(records: Sequence[Record]) -> str:
    return " ".join(cross_architecture.describe(records).split())


@cache
def whole() -> Figure:
    """`snapshot_resmlp` with nothing missing."""
    return plot_snapshot_resmlp(make_resmlp())


def without(records: Sequence[Record], **gone: Any) -> list[Record]:
    """The records but those whose rule, seed, net and terminal norm are all as given."""

    def facts(record: Record) -> dict[str, Any]:
        spec = record.spec
        assert spec is not None
        terminal = spec.net_options.get("terminal_norm")
        return {"rule": spec.rule, "seed": spec.seed, "net": spec.net, "terminal": terminal}

    return [r for r in records if not all(facts(r)[name] == value for name, value in gone.items())]


class TestDrawing:
    def test_they_are_registered(self):
        for name, plot in (
            ("snapshot_resmlp", plot_snapshot_resmlp),
            ("snapshot_vit", plot_snapshot_vit),
            ("cross_architecture", plot_cross_architecture),
        ):
            assert FIGURES.get(name) is plot
            assert FIGURES.summary(name)

    def test_norms_are_geometric_means_with_bands_of_log10(self):
        fig = whole()
        x, y = drawn(fig, "A1", "dfa")
        assert x.tolist() == list(EPOCHS)
        mean = np.mean([np.log10(2**seed) for seed in SEEDS])
        np.testing.assert_allclose(y, 10 ** (mean + 1 + 4 * x / 8))
        sd = np.log10(2)  # of log10 2, log10 4 and log10 8 with ddof 1
        found = band(fig, "A1", "dfa")
        np.testing.assert_allclose([found[:, 1].min(), found[:, 1].max()], [y[0] * 10**-sd, y[-1] * 10**sd])
        np.testing.assert_allclose(drawn(fig, "A2", "dfa")[1], 10.0 ** (-6 * x / 8))
        np.testing.assert_allclose(drawn(fig, "B2", "dfa")[1], 1.0)
        assert "mean ± sd of log10 over 3 seeds" in texts(fig)

    def test_accuracy_is_a_plain_mean_beside_chance(self):
        fig = plot_cross_architecture(make_cross())
        for row, rule, wanted in (("A", "bp", 0.62), ("B", "fa", 0.52), ("C", "dfa", 0.32)):
            np.testing.assert_allclose(drawn(fig, f"{row}3", rule)[1], wanted)
            corners = band(fig, f"{row}3", rule)[:, 1]
            np.testing.assert_allclose([corners.min(), corners.max()], [wanted - 0.01, wanted + 0.01])
            assert drawn(fig, f"{row}3", "chance")[1].tolist() == [0.1, 0.1]

    def test_the_vit_is_drawn_by_its_class_token(self):
        runs = [make_run(rule, seed, net="vit", h=grow(10, 2)) for rule in ("bp", "dfa") for seed in SEEDS]
        fig = plot_snapshot_vit(runs)
        x, y = drawn(fig, "A1", "bp")
        np.testing.assert_allclose(y, 4 * 10 ** (1 + 2 * x / 8))
        np.testing.assert_allclose(drawn(fig, "A2", "bp")[1], 10.0 ** (-x / 8))
        assert "norms of the class token" in texts(fig)

    def test_a_column_has_one_range_and_the_floor(self):
        fig = whole()
        for column in "12":
            assert panel(fig, f"A{column}").get_ylim() == panel(fig, f"B{column}").get_ylim()
        for row in "AB":
            assert drawn(fig, f"{row}2", "published floor")[1].tolist() == [PUBLISHED_FLOOR] * 2
        assert "N = 128" in texts(fig)
        assert "out of the panels" not in texts(fig)
        low, high = panel(fig, "A2").get_ylim()
        assert low < 1e-6 < 1 < high
        far = plot_snapshot_resmlp(make_resmlp(g=grow(1, -1)))
        assert panel(far, "A2").get_ylim()[0] > PUBLISHED_FLOOR
        assert "out of the panels" in texts(far)
        cross = plot_cross_architecture(make_cross())
        for column in "123":
            assert len({panel(cross, f"{row}{column}").get_ylim() for row in "ABC"}) == 1

    def test_other_variants_are_not_drawn(self):
        runs = make_resmlp()
        wrong = {"h": grow(1e9, 1), "g": grow(1e9, 1)}
        variant = RuleFacts(name="dfa", label="DFA", variant="scale unit")
        others = [
            make_run("dfa", 1, credit_norm="sample", **wrong),
            make_run("dfa", 1, penalty=0.01, **wrong),
            make_run("dfa", 1, frozen=True, **wrong),
            make_run("dfa", 1, train_last=1, **wrong),
            make_run("dfa", 1, targets="random", **wrong),
            make_run("dfa", 1, rule_options={"scale": "unit"}, rule_facts=variant, **wrong),
            make_run("block_fa", 1, **wrong),
        ]
        old, new = whole(), plot_snapshot_resmlp([*others, *runs])
        assert texts(old) == texts(new)
        assert drawn(old, "A1", "dfa")[1].tolist() == drawn(new, "A1", "dfa")[1].tolist()

    def test_two_settings_are_refused(self):
        with pytest.raises(CreditscopeError, match="Expected records of one setting, but they differ in lr"):
            plot_snapshot_resmlp([*make_resmlp(), make_run("bp", 9, lr=0.1)])


class TestCaptions:
    def test_the_figure_says_what_the_text_says(self):
        starts = ("From epoch", "In orders", "‖g₂‖ is", "The limit", "g₂ is no", "At the end, DFA")
        sentences = [text for text in said_of(make_resmlp()).split(". ") if text.startswith(starts)]
        assert len(sentences) == 11
        assert [text for text in sentences if text not in texts(whole())] == []

    def test_they_follow_the_data(self):
        said = said_of(make_resmlp())
        assert "From epoch 0 to 8 ‖h₄‖ grows 3.2-fold under BP and 10⁴-fold under DFA." in said
        assert "In orders of magnitude ‖g₂‖ falls by 1.0 ± 0 under BP and 6.0 ± 0 under DFA." in said
        assert (
            "‖g₂‖ is under the published floor, 1.28×10⁻⁵, first at epoch 8 (3 of 3 seeds) under DFA and never under BP"
            in said
        )
        assert "‖h₄‖ grows 3.2-fold under BP and 100-fold under DFA" in said
        assert "‖g₂‖ falls by 1.0 ± 0 under BP and keeps its size under DFA" in said
        assert "‖g₂‖ is never under the published floor, 1.28×10⁻⁵, under BP and DFA." in said
        assert (
            "DFA with a terminal norm has a ‖g₂‖ that is 6.0 ± 0 orders of magnitude smaller than without one" in said
        )
        assert "a ‖h₄‖ that is 100-fold larger (paired over seeds)" in said
        assert "g₂ is no rounding noise: float64 differs by at most 10⁻⁷ of it." in said

    def test_they_turn_with_the_data(self):
        said = said_of(make_resmlp(h=grow(10, -1), g=grow(1, 2), noise=0.2))
        assert "‖h₄‖ grows 3.2-fold under BP and shrinks 10-fold under DFA." in said
        assert "‖g₂‖ falls by 1.0 ± 0 under BP and rises by 2.0 ± 0 under DFA." in said
        assert "is crossed first" not in said
        assert said.count("‖g₂‖ is never under the published floor") == 2
        assert "2.0 ± 0 orders of magnitude larger than without one, and a ‖h₄‖ that is 10³-fold smaller" in said
        assert "g₂ is unresolved: at its worst, float64 differs by more than 0.1 of it for DFA (0.2)." in said

    def test_the_limit_of_growth_is_that_of_the_decision_table(self):
        runs = make_resmlp(block_growth=lambda epoch: 30.0 * epoch)
        said = said_of(runs)
        assert (
            "The limit of growth over one block, 50-fold, is crossed first at epoch 2 (3 of 3 seeds) under DFA" in said
        )
        judged = audit([r for r in runs if r.spec and r.spec.net_options["terminal_norm"]]).decisions()
        rows = {row.criterion: row for row in judged if row.method.startswith("DFA") and row.seed is None}
        table = [line.split() for line in snapshot_resmlp.describe(runs).splitlines() if ", DFA" in line]
        assert rows["growth > 50"].first_epoch == 2
        assert rows["‖g_L‖ < 1.28e-5"].first_epoch == 8  # at the top g is twice as large, 2e-6
        assert " ".join(table[0][-12:]) == "epoch 2 (3 of 3 seeds) epoch 8 (3 of 3 seeds)"

    def test_growth_is_that_of_the_drawn_tokens(self):
        """In a ViT the class token's, as in the table of reproduction, whatever the other tokens do."""
        runs = [make_run(rule, seed, net="vit") for rule in ("bp", "dfa") for seed in SEEDS]
        grown = [
            r if r.spec and r.spec.rule == "bp" else with_growth(r, whole=(60.0, 1.0), token=(1.0, 60.0)) for r in runs
        ]
        said = " ".join(snapshot_vit.describe(grown).split())
        assert "50-fold, is crossed first at epoch 8 (3 of 3 seeds) under DFA and never under BP." in said
        assert [first_epoch(grows)(r) for r in grown if r.spec and r.spec.rule == "dfa"] == [6.5] * 3  # of 5 to 8

    def test_another_tap_that_is_unresolved_is_named(self):
        noises = {1: (0.0, 0.15, 1e-7, 0.11, 0.0), 2: (0.0, 0.0, 1e-7, 0.2, 0.0), 3: 1e-7}
        runs = [
            r for r in make_resmlp() if not (r.spec and r.spec.rule == "dfa" and r.spec.net_options["terminal_norm"])
        ]
        noisy = [make_run("dfa", seed, h=grow(10, 4), g=grow(1, -6), noise=noise) for seed, noise in noises.items()]
        said = said_of([*runs, *noisy])
        assert (
            "g₂ is no rounding noise: float64 differs by at most 10⁻⁷ of it. At tap 3 the gradient is unresolved "
            "(CS002): under DFA, seed 2, float64 differs by .20 of it at the end." in said
        )
        assert said.count("(CS002)") == 1
        assert "(CS002)" not in said_of(make_resmlp(noise=0.2))  # the drawn tap itself, which is said otherwise

    def test_seeds_that_do_not_cross_are_counted(self):
        runs = without(make_resmlp(), rule="dfa", seed=2, terminal=True)
        said = said_of([*runs, make_run("dfa", 2, g=grow(1, -3))])
        assert "first at epoch 8 (2 of 3 seeds) under DFA" in said
        assert "falls by 1.0 ± 0 under BP and 5.0 ± 1.7 under DFA" in said

    @pytest.mark.parametrize(("end", "words"), [(0.3, "(30.0 ± 0 pp below BP)"), (0.7, "(10.0 ± 0 pp above BP)")])
    def test_accuracy_is_held_against_bp(self, end, words):
        records = make_cross(accuracy={"dfa": end})
        said = cross_said(records)
        assert said.count(f"DFA {end + 0.02:.2f}".replace("0.", ".") + f" ± .01 {words}") == 3
        assert "FA .52 ± .01 (10.0 ± 0 pp below BP)" in said
        assert f"{end + 0.02:.3f} ± 0.010" in cross_architecture.describe(records)

    def test_rules_are_named_in_the_order_of_the_key(self):
        fig = plot_cross_architecture(make_cross())
        key = [t.get_text() for legend in fig.findobj(Legend) for t in legend.get_texts()]
        assert key[:3] == ["BP", "FA", "DFA"]
        for sentence in texts(fig).split(". "):
            named = re.findall(r"(?:under|and|,|end:) (BP|FA|DFA)\b", sentence)
            assert named == sorted(named, key=key.index), sentence
        assert "fold under BP, 3.2-fold under FA and 3.2-fold under DFA" in texts(fig)
        assert "Test accuracy at the end: BP" in texts(fig)

    def test_a_small_spread_is_not_written_as_none(self):
        runs = without(make_resmlp(), rule="dfa", seed=2, terminal=True)
        said = said_of([*runs, make_run("dfa", 2, h=grow(10, 4), g=grow(1, -6.05))])
        assert "‖g₂‖ falls by 1.0 ± 0 under BP and 6.02 ± 0.03 under DFA." in said

    def test_no_change_is_none_however_small_its_spread(self):
        """Orders of magnitude are told from none by one decimal, as before they are written with more."""
        runs = without(make_resmlp(), rule="dfa", terminal=True)
        still = [make_run("dfa", seed, g=grow(1, orders)) for seed, orders in zip(SEEDS, (0, 0.01, 0.02), strict=True)]
        assert "‖g₂‖ falls by 1.0 ± 0 under BP and keeps its size under DFA." in said_of([*runs, *still])

    def test_the_text_holds_the_ends(self):
        said = snapshot_resmlp.describe(make_resmlp())
        (line,) = [line for line in said.splitlines() if line.strip().startswith("ResMLP with terminal LayerNorm, DFA")]
        assert line.split()[5:10] == ["400,000", "1e-6", "0.620", "±", "0.010"]
        assert "never" in line
        assert "Seeds 1, 2, 3 (n = 3)" in " ".join(said.split())


class TestGaps:
    def test_a_missing_rule_is_marked(self):
        fig = plot_snapshot_resmlp(without(make_resmlp(), rule="dfa", terminal=True))
        said = texts(fig)
        assert "DFA: not on record" in said
        assert "ResMLP with terminal LayerNorm, DFA: not on record." in said
        assert "paired over seeds" not in said
        assert len(drawn(fig, "B1", "dfa")[0]) == len(EPOCHS)
        assert not [line for line in panel(fig, "A1").lines if line.get_gid() == "dfa"]
        only_dfa = cross_said(without(make_cross(), rule="bp"))
        assert "pp below BP" not in only_dfa
        assert "BP: not on record" in only_dfa

    def test_a_missing_net_is_marked(self):
        fig = plot_cross_architecture(without(make_cross(), net="student"))
        assert [t.get_text() for t in panel(fig, "C1").texts] == ["not on record"]
        assert "No run of this net is on record." in texts(fig)
        assert_clear(fig)
        described = cross_architecture.describe(without(make_cross(), net="student"))
        assert "StudentNet, no LayerNorm: not on record." in described

    def test_no_run_at_all_is_an_error(self):
        with pytest.raises(CreditscopeError, match="Expected records of plain runs of bp, dfa on ViT-Mini"):
            plot_snapshot_vit(make_resmlp())

    def test_only_shared_seeds_are_drawn(self):
        fig = plot_snapshot_resmlp(without(make_resmlp(), rule="bp", seed=3, terminal=False))
        np.testing.assert_allclose(drawn(fig, "A1", "dfa")[1][0], 10 * 2**1.5)
        assert "Left out, as not every rule and net has it: seed 3." in texts(fig)
        assert "Seeds 1, 2 (n = 2)" in texts(fig)

    def test_rules_without_a_common_seed_leave_a_gap(self):
        runs = [make_run("bp", 1), make_run("dfa", 2), make_run("bp", 1, terminal=False)]
        said = texts(plot_snapshot_resmlp(runs))
        assert "DFA: not on the shared seeds" in said
        assert "Left out, as not every rule and net has it: seed 2." in said

    def test_thinned_seeds_are_drawn_at_the_epochs_that_all_have(self):
        runs = without(make_resmlp(), rule="dfa", seed=3, terminal=True)
        fig = plot_snapshot_resmlp([*runs, make_run("dfa", 3, h=grow(10, 4), g=grow(1, -6), epochs=(0, 2, 8))])
        assert drawn(fig, "A1", "bp")[0].tolist() == drawn(fig, "A1", "dfa")[0].tolist() == [0, 2, 8]
        assert drawn(fig, "B1", "bp")[0].tolist() == list(EPOCHS)
        assert "A: mnist1d, resmlp (width 8, depth 4), 8 epochs, drawn at the 3 that all" in texts(fig)

    def test_a_diverged_run_is_drawn_to_its_last_snapshot_and_is_in_no_mean(self):
        runs = without(make_resmlp(), rule="dfa", seed=3, terminal=True)
        lost = make_run("dfa", 3, h=grow(10, 20), epochs=(0, 1, 2), diverged=3)
        fig = plot_snapshot_resmlp([*runs, lost])
        said = texts(fig)
        assert "DFA: seed 3 diverged in epoch 3, drawn to its last snapshot and in no mean." in said
        assert "a run that diverged" in said
        assert drawn(fig, "A1", "dfa diverged")[0].tolist() == [0, 1, 2]
        assert drawn(fig, "A1", "dfa diverged")[1][-1] == pytest.approx(80 * 10**5)
        assert panel(fig, "A1").get_ylim()[1] > 80 * 10**5
        np.testing.assert_allclose(drawn(fig, "A1", "dfa")[1][0], 10 * 2**1.5)
        assert_clear(fig)

    def test_a_rule_that_always_diverged_has_no_mean(self):
        runs = without(make_resmlp(), rule="dfa", terminal=True)
        fig = plot_snapshot_resmlp([*runs, *(make_run("dfa", s, epochs=(0, 1), diverged=2) for s in SEEDS)])
        assert "DFA: diverged" in texts(fig)
        assert "Seeds 1, 2, 3 (n = 3)" in texts(fig)
        assert_clear(fig)
        nothing = [make_run(rule, 1, epochs=(0, 1), diverged=2) for rule in ("bp", "dfa")]
        assert "No run of this net was finished." in said_of(nothing)

    def test_unfinished_runs_and_lost_values_are_said(self):
        runs = without(make_resmlp(), rule="dfa", seed=3, terminal=True)
        said = said_of([*runs, make_run("dfa", 3, epochs=(0, 1), status="running")])
        assert "ResMLP with terminal LayerNorm, DFA: seed 3 unfinished, left out." in said
        zero = said_of(make_resmlp(g=lambda epoch: 0.0 if epoch == 8 else 1.0))
        assert "DFA: no ‖g₂‖ above 0 at 3 of 15 points." in zero
        assert "‖g₂‖ falls by 1.0 ± 0 under BP and is unmeasured under DFA" in zero

    def test_one_seed_has_no_band(self):
        fig = plot_cross_architecture(make_cross(seeds=(1,)))
        assert len(band(fig, "A1", "bp")) == 0
        assert "one seed, no band" in texts(fig)
        assert "Seed 1 (n = 1); one seed, so no bands" in texts(fig)
        assert "±" not in texts(fig)
        assert_clear(fig)


class TestPages:
    def test_texts_are_clear_of_each_other(self):
        assert_clear(whole())
        assert_clear(plot_cross_architecture(make_cross(seeds=range(1, 21))))
        assert_clear(plot_snapshot_vit(make_cross()))

    def test_gaps_are_clear_of_headings(self):
        assert_clear(plot_cross_architecture(without(without(make_cross(), rule="fa"), rule="dfa")))

    def test_they_are_drawn_from_stored_records_without_torch(self, tmp_path):
        options = {"depth": 4, "width": 128}
        for rule in ("bp", "dfa"):
            for terminal in (True, False):
                spec = {"net_options": {**options, "terminal_norm": terminal}, "epochs": 60, "snapshot_every": 5}
                write_record(tmp_path / "records", make_record(rule=rule, **spec))
        where = ["--records", str(tmp_path / "records"), "--out", str(tmp_path), "--no-train"]
        code = (
            "import sys; from creditscope.cli import main\n"
            f"main({['figure', 'snapshot_resmlp', *where]})\n"
            "assert 'torch' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "ResMLP without terminal LayerNorm, DFA" in done.stdout
        assert f"wrote {tmp_path / 'snapshot_resmlp.pdf'}" in done.stdout
        assert "8 of 12 runs are not on record" in done.stdout


def test_modules_have_their_own_text():
    assert "class token, DFA" in snapshot_vit.describe(make_cross())
