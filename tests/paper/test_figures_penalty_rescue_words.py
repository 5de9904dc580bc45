"""Figure `penalty_rescue`: when DFA is read, and that what is said follows the data."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pages import assert_clear, texts
from penalty_runs import EPOCHS, FLAT, GROWN, SEEDS, make_run, make_study

from creditscope.auditing.stats import t_interval
from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.paper.early import find_early
from creditscope.paper.figures._penalty import select_rescue
from creditscope.paper.figures._penalty_bars import METRICS
from creditscope.paper.figures._penalty_captions import (
    caption_cost,
    caption_metrics,
    caption_trajectory,
    footer,
    title_cost,
)
from creditscope.paper.figures.penalty_rescue import describe, plot_penalty_rescue
from creditscope.record import Record


def said_of(records: Sequence[Record]) -> str:
    """All sentences, as the command prints them, with plain spaces."""
    return " ".join(describe(records).split()).replace("\u00a0", " ")


class TestEarly:
    @staticmethod
    def early(at: dict[int, dict], **others) -> tuple[int, int | None]:
        found = find_early(make_run("early", 1, at=at, **others))
        return found.snapshot.epoch, found.fired

    def test_at_latest_epoch_5(self):
        assert self.early({}) == (5, None)
        assert self.early({EPOCHS: GROWN}) == (5, None)
        assert self.early({}, epochs=(0, 1, 2, 3)) == (3, None)

    @pytest.mark.parametrize("alarm", ["GROWN", "FLAT"])
    def test_the_last_snapshot_before_growth_or_the_floor(self, alarm):
        taps = {"GROWN": GROWN, "FLAT": FLAT}[alarm]
        assert self.early({3: taps}) == (2, 3)
        assert self.early({4: taps, 2: taps}) == (1, 2)
        assert self.early({5: taps}, epochs=(0, 2, 5, EPOCHS)) == (2, 5)

    def test_alarm_from_the_start_leaves_the_first_snapshot(self):
        assert self.early({1: GROWN}) == (0, 1)
        assert self.early({0: GROWN, 1: GROWN}) == (0, 0)

    def test_just_at_the_limits_nothing_fires(self):
        assert self.early({3: {"h_rms": (1.0, 50.0, 50.0, 50.0, 50.0), "g_norm": PUBLISHED_FLOOR}}) == (5, None)

    def test_each_seed_has_its_own_epoch_and_the_caption_says_which(self):
        records = make_study(without=("early",))
        records += [make_run("early", 1), make_run("early", 2, at={3: FLAT}), make_run("early", 3, at={3: GROWN})]
        said = said_of(records)
        assert "read at epoch 2 (2 seeds) and 5 (1 seed)" in said
        assert "No alarm by then in 1 seed." in said
        assert "read at epoch 2, the last snapshot" in said_of(make_study(early={"at": {3: FLAT}}))

    def test_before_training_is_said(self):
        said = said_of(make_study(early={"at": {1: GROWN}}))
        assert "read at epoch 0, the last snapshot" in said
        assert "For 3 seeds that is before training" in said


class TestWords:
    def test_the_page_says_what_the_command_prints(self):
        records = make_study(without=("weak",))
        found, page = select_rescue(records), texts(plot_penalty_rescue(records))
        for say in (caption_trajectory, caption_metrics, title_cost, caption_cost, footer):
            sentence = say(found).replace("\u00a0", " ")
            assert sentence in page
            assert sentence in said_of(records)

    def test_title_and_cost_follow_the_data(self):
        said = said_of(make_study())
        assert "Penalty: BP −5.0 pp, gap left 17.0 pp" in said
        assert "lowers BP: −5.0 pp" in said
        assert "lifts DFA: +6.0 pp" in said
        assert "is above frozen blocks, stem by DFA (+3.0 pp" in said
        assert "below frozen blocks, stem by BP (−2.0 pp" in said
        other = said_of(make_study(strong={"accuracy": 0.2}, bp_strong={"accuracy": 0.6}))
        assert "Penalty: BP +2.0 pp, gap left 40.0 pp" in other
        assert "lifts BP: +2.0 pp" in other
        assert "lowers DFA: −10.0 pp" in other
        assert "below frozen blocks, stem by DFA" in other

    def test_intervals_are_paired_t_intervals(self):
        values = (0.50, 0.58, 0.55)
        records = [make_run("bp strong", s, accuracy=a) for s, a in zip(SEEDS, values, strict=True)]
        said = said_of([*records, *make_study(without=("bp strong",))])
        gains = [100 * (a - b) for a, b in zip(values, (0.578, 0.58, 0.582), strict=True)]
        wanted = t_interval(gains)
        shown = f"{wanted.mean:+.1f} pp [{wanted.low:+.1f}, {wanted.high:+.1f}]".replace("-", "−")
        assert f"does not clearly change BP: {shown}" in said

    def test_cosine_is_judged_against_its_own_null(self):
        said = said_of(make_study())
        assert "Early DFA no, −0.01 [−0.03, +0.01]; DFA with λ = 10⁻⁴ yes, +0.05" in said
        assert "Descent: no for early DFA; yes for DFA with λ = 10⁻⁴ and DFA with λ = 10⁻²" in said
        high = {"fresh_cos": 0.5}
        other = said_of(make_study(strong={"taps": high}, early={"taps": {"cos": 0.4}}))
        assert "Early DFA yes, +0.40" in other
        assert "DFA with λ = 10⁻² below, −0.35" in other

    def test_a_gradient_that_is_zero_is_under_the_floor(self):
        said = said_of(make_study(strong={"at": {20: {"g_norm": 0.0}}}))
        assert "3 of 3 seeds (first at epoch 20) under DFA with λ = 10⁻²" in said

    def test_footer(self):
        said = said_of(make_study())
        assert "mnist1d, resmlp (depth 4, width 8), 30 epochs, seeds 1, 2, 3 (n = 3), credit norm none." in said
        assert "of the null over 8 draws (cosine) or 4 (ρ, descent) and seeds" in said
        assert "taps 2..4, on 1000 test rows (descent: 256)." in said
        few = [replace(r, snapshots=tuple(replace(s, rows=200) for s in r.snapshots)) for r in make_study()]
        assert "taps 2..4, on 200 test rows. Alarms" in said_of(few)

    def test_one_seed_has_no_bars_and_no_judgement(self):
        fig = plot_penalty_rescue(make_study(seeds=(1,)))
        said = texts(fig)
        assert "One seed, so no bars, but those of the draws" in said
        assert "Early DFA not judged, −0.02 (one seed)" in said
        assert "changes BP by −5.0 pp (one seed)" in said
        (b,) = [ax for ax in fig.axes if ax.get_label() == "B"]
        errors = {line.get_gid() for line in b.lines if str(line.get_gid()).endswith(" sd")}
        assert errors == {f"{metric.own} null sd" for metric in METRICS}
        assert_clear(fig)
