"""Study and figure `normalisation`: which runs, which numbers, and that captions follow the data."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from builders import make_record
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pages import assert_clear, texts
from trained import train_run

from creditscope.auditing.stats import t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import FIGURES, save_figure
from creditscope.paper.figures.normalisation import plot_normalisation
from creditscope.paper.studies import collect
from creditscope.paper.studies.normalisation import ALL_PENALTIES, NORMS, normalisation
from creditscope.record import Record
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

pytestmark = pytest.mark.slow

SEEDS = (1, 2, 3)
RATES = {"adamw": {"lr": 1e-3}, "sgd": {"lr": 0.02, "weight_decay": 5e-4}}


def make_grid(*, optimisers=("adamw", "sgd"), terminals=(True, False), seeds=SEEDS, penalties=(0.0, 0.01)) -> dict:
    """Records by (optimiser, terminal norm, rule, norm, λ, frozen, seed): frozen .30, frozen BP .40, BP .70."""
    found = {}
    for optimiser, terminal, seed in product(optimisers, terminals, seeds):
        shared = {"optimiser": optimiser, **RATES[optimiser], "seed": seed, "epochs": 60}
        shared |= {"net_options": {"depth": 4, "width": 8, "terminal_norm": terminal}}
        off = 0.001 * seed

        def add(rule, norm="none", penalty=0.0, frozen=False, *, accuracy, key=(optimiser, terminal), seed=seed,
                shared=shared, off=off, **others):  # fmt: skip
            fields = {"rule": rule, "credit_norm": norm, "penalty": penalty, "frozen": frozen, **shared, **others}
            found[(*key, rule, norm, penalty, frozen, seed)] = make_record(accuracy=accuracy + off, **fields)

        for i, norm in enumerate(NORMS):
            for penalty in penalties:
                taps = {"cos": (0.9, 0.8, 0.1 * i, 0.2, 0.3), "h_rms": (1.0, 2.0, 4.0 if penalty else 400.0, 5.0, 5.0)}
                add("dfa", norm, penalty, accuracy=(0.55 if penalty else 0.35) - 0.05 * i, taps=taps)
            add("dfa", norm, frozen=True, accuracy=0.3)
        add("bp", accuracy=0.7)
        add("bp", frozen=True, accuracy=0.4)
    return found


def changed(found: dict, *key, **changes: Any) -> list[Record]:
    """The records with those whose key starts so made anew."""
    kept = [r for k, r in found.items() if k[: len(key)] != key]
    for k, r in found.items():
        if k[: len(key)] == key:
            spec = {"optimiser": k[0], **RATES[k[0]], "net_options": r.spec.net_options, "epochs": 60}
            fields = {"rule": k[2], "credit_norm": k[3], "penalty": k[4], "frozen": k[5], "seed": k[6], **spec}
            kept.append(make_record(**{"accuracy": r.last.accuracy, **fields, **changes}))
    return kept


def panel(fig: Figure, row: int, title: str) -> Axes:
    return next(ax for ax in fig.axes if str(ax.get_label()).startswith(f"{row} {title}"))


def drawn(ax: Axes, gid: str) -> float:
    (line,) = [line for line in ax.lines if line.get_gid() == gid]
    return float(np.atleast_1d(line.get_xdata())[0])


class TestStudy:
    def test_its_runs(self):
        runs = normalisation().runs
        assert len(runs) == 3 * 4 * (3 * 2 + 3 + 2)
        assert len(normalisation(penalties=ALL_PENALTIES, seeds=(1,)).runs) == 4 * (3 * 5 + 3 + 2)
        dfa = [r for r in runs if r["rule"] == "dfa" and not r.get("frozen")]
        found = {(r["optimiser"], r["net_options"]["terminal_norm"], r["credit_norm"], r["penalty"]) for r in dfa}
        assert found == set(product(("adamw", "sgd"), (True, False), NORMS, (0.0, 0.01)))
        assert {r.get("lr", 1e-3) * r.get("weight_decay", 0.01) for r in runs} == {1e-5}

    def test_one_frozen_run_serves_every_penalty(self):
        """A penalty has no trained parameter to act on."""
        ends = []
        for penalty in (0.0, 0.1):
            small = {"net_options": {"depth": 2, "width": 8}, "epochs": 1, "rule": "dfa", "frozen": True}
            run = build_run(plan_run(task="digits", **small, penalty=penalty))
            train_run(run, audit=False)
            ends.append(run.tensors())
        assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())

    def test_it_is_trained_and_drawn(self, tmp_path):
        study = normalisation("test", seeds=(1,), penalties=(0.01,))
        problems: list[str] = []
        records = collect(study, tmp_path, train=True, problems=problems, jobs=1, device="cpu")
        assert len(records) == len(study.runs) == 32
        fig = plot_normalisation(records)
        assert "seed 1 (n = 1)" in texts(fig)
        assert "Use of depth is not judged: it needs 3 seeds" in texts(fig)
        again = collect(study, tmp_path, train=False, problems=problems)
        assert (len(again), problems) == (32, [])


class TestFigure:
    def test_is_registered(self):
        assert FIGURES.get("normalisation") is plot_normalisation
        assert "use of depth" in FIGURES.summary("normalisation")

    def test_means_are_those_of_the_records(self):
        fig = plot_normalisation(list(make_grid().values()))
        for row in range(4):
            for i, norm in enumerate(NORMS):
                assert drawn(panel(fig, row, "test accuracy"), f"{norm} 0.01") == pytest.approx(0.552 - 0.05 * i)
                assert drawn(panel(fig, row, "deep cosine"), f"{norm} 0.01") == pytest.approx((0.1 * i + 0.5) / 3)
                assert drawn(panel(fig, row, "largest growth"), f"{norm} 0.01") == pytest.approx(2.0)
                assert drawn(panel(fig, row, "largest growth"), f"{norm} 0") == pytest.approx(200.0)
                # over frozen BP, the better baseline
                assert drawn(panel(fig, row, "use of depth"), f"{norm} 0.01") == pytest.approx(15 - 5 * i)
        accuracy = panel(fig, 0, "test accuracy")
        assert [drawn(accuracy, name) for name in ("bp", "frozen bp", "frozen none")] == pytest.approx(
            [0.702, 0.402, 0.302]
        )

    def test_bars_are_t_intervals_over_seeds(self):
        found = make_grid(optimisers=("adamw",), terminals=(True,))
        fig = plot_normalisation(list(found.values()))
        values = [found["adamw", True, "dfa", "none", 0.01, False, seed].last.accuracy for seed in SEEDS]
        wanted = t_interval(values)
        spans = [tuple(line.get_xdata()) for line in panel(fig, 0, "test accuracy").lines if len(line.get_xdata()) == 2]
        assert any(np.allclose(span, (wanted.low, wanted.high)) for span in spans)
        assert "95 % t interval over 3 seeds" in texts(fig)

    def test_settings_are_rows_with_their_rates(self):
        said = texts(plot_normalisation(list(make_grid().values())))
        for heading in ("A AdamW, terminal LayerNorm (lr 0.001)", "SGD, no terminal norm (lr 0.02)"):
            assert heading in said

    def test_caption_follows_the_data(self):
        found = make_grid()
        said = texts(plot_normalisation(list(found.values())))
        assert "in pp at λ = 10⁻², paired over seeds [95 % t interval]: AdamW, terminal LayerNorm: batch +5.0" in said
        assert "sample +10.0 [+10.0, +10.0]; AdamW, no terminal norm" in said
        assert (
            "Depth is used (95 % lower bound over 2 pp) in conditions that stayed finite: none 4 of 8, batch 4" in said
        )
        assert "AdamW, terminal LayerNorm (every norm at λ = 0)" in said
        assert "No run diverged." in said
        calm = texts(plot_normalisation(changed(found, taps={"h_rms": 1.0})))
        assert "No block overwrites the stream" in calm

    def test_a_bound_near_zero_keeps_its_side(self):
        found = make_grid()
        for seed, more in zip(SEEDS, (0.0015, 0.0010, 0.0009), strict=True):
            plain = found["adamw", True, "dfa", "none", 0.01, False, seed].last.accuracy
            key = "adamw", True, "dfa", "batch", 0.01, False, seed
            found[key] = replace(found[key], snapshots=(replace(found[key].last, accuracy=plain + more),))
        said = texts(plot_normalisation(list(found.values())))
        assert "terminal LayerNorm: batch −0.1 [−0.2, −0.03]" in said

    def test_depth_is_not_judged_where_bp_does_not_use_it(self):
        shallow = changed(make_grid(), "adamw", True, "bp", accuracy=0.41)
        assert "none 3 of 6" in texts(plot_normalisation(shallow))

    def test_diverged_runs_are_said(self):
        fig = plot_normalisation(changed(make_grid(), "sgd", True, "dfa", "sample", 0.0, False, diverged=3))
        said = texts(fig)
        assert "3/3 diverged" in said
        assert "Diverged runs: none 0 of 24, batch 0 of 24, sample 3 of 24." in said
        assert np.isnan(drawn(panel(fig, 2, "test accuracy"), "sample 0"))

    def test_missing_runs_are_said(self):
        found = make_grid()
        kept = [r for k, r in found.items() if k[:5] != ("adamw", True, "dfa", "none", 0.01)]
        said = texts(plot_normalisation([r for r in kept if not (r.spec.rule == "bp" and r.spec.seed == 3)]))
        assert "AdamW, terminal LayerNorm: 3 runs not on record or not complete." in said
        assert "SGD, no terminal norm: 2 reference runs not on record or not complete." in said

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"lr": 0.5},
                "Expected one learning rate and weight decay for adamw, but got 0.001 and 0.01, 0.5 and 0.01",
            ),
            ({"epochs": 9}, r"Expected records of one setting, but they differ in epochs \(60, 9\)"),
            ({"net_options": {"depth": 4, "width": 9, "terminal_norm": True}}, "Expected nets of one size, but got 2"),
        ],
    )
    def test_mixed_settings_are_refused(self, changes, message):
        with pytest.raises(CreditscopeError, match=message):
            plot_normalisation(changed(make_grid(), "adamw", True, "dfa", "none", 0.0, **changes))

    def test_nothing_to_draw_is_refused(self):
        with pytest.raises(CreditscopeError, match="Expected records of dfa by credit norm and penalty, but got none"):
            plot_normalisation([make_record(rule="bp")])

    @pytest.mark.parametrize("penalties", [(0.0, 0.01), ALL_PENALTIES])
    def test_no_text_leaves_the_page_or_covers_another(self, penalties, tmp_path):
        found = make_grid(penalties=penalties)
        fig = plot_normalisation(changed(found, "sgd", True, "dfa", "sample", 0.0, False, diverged=3))
        save_figure(fig, tmp_path, "normalisation")
        assert fig.get_size_inches()[1] < 10.5  # a page
        assert_clear(fig)
