"""What taps were told, over seeds: each answer against a t test, Holm and nulls computed by hand."""

import re
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from builders import make_facts
from judging import BLIND, judge_seeds, make_moments
from scipy import stats

from creditscope.auditing import Thresholds
from creditscope.auditing.stats import below_p
from creditscope.auditing.tap_credit import TapAnswer, judge_taps, what_would_decide
from creditscope.record import RuleFacts

LIMITS = Thresholds()
BLOCKS = (1, 2, 3, 4)
NARROW = {"null_sd": 0.01, "null_sd_F": 0.01, "stage_cos": 0.0}
"""Nulls that a cosine of 0.05 is far above, and weights that know nothing."""


def answers(taps: Any, *, blocks=BLOCKS, facts=None, limits: Thresholds = LIMITS) -> list[TapAnswer]:
    found = judge_taps(make_moments(facts, taps=taps), blocks, limits)
    assert not isinstance(found, str), found
    return found


def missing(taps: Any, *, facts=None, seeds: int = 3) -> str:
    """What was not measured at the block taps."""
    found = judge_taps(make_moments(facts, taps=taps, seeds=seeds), BLOCKS, LIMITS)
    assert isinstance(found, str)
    return found


def said(taps: Any, **others: Any) -> list[str]:
    return [found.answer for found in answers(taps, **others)]


def at_tap_1(*values: float, name: str = "cos", **others: Any) -> list[dict[str, Any]]:
    """Tap 1 has these values, one per seed; all others carry credit."""
    rest = {**NARROW, **others}
    return [{**rest, name: (0.5, value, 0.5, 0.5, 0.5)} for value in values]


def both(*values: float, **others: Any) -> list[dict[str, Any]]:
    """The same of `cos` and `cos_F`."""
    return [{**one, "cos_F": one["cos"]} for one in at_tap_1(*values, **others)]


class TestThreeAnswers:
    @pytest.mark.parametrize(
        "values",
        [(0.06, 0.062, 0.064), (0.2, 0.05, 0.1), (0.01, 0.012, 0.014), (0.0, 0.04, 0.08), (0.049, 0.05, 0.0505)],
    )
    def test_are_those_of_two_t_tests(self, values):
        """Tap 1 alone is asked, so that Holm has nothing to correct."""
        (found,) = answers(both(*values), blocks=(1,))
        above = stats.ttest_1samp(values, 0.05, alternative="greater").pvalue <= 0.05
        below = stats.ttest_1samp(values, 0.05, alternative="less").pvalue < 0.05
        assert found.answer == ("carries" if above else "below" if below else "open")
        bounds = stats.ttest_1samp(values, 0).confidence_interval(0.9)
        assert (found.cos.low, found.cos.mean, found.cos.high) == pytest.approx(
            (bounds.low, np.mean(values), bounds.high)
        )

    @pytest.mark.parametrize(("mean", "answer"), [(0.066, "open"), (0.069, "carries")])
    def test_the_mean_must_be_above_the_null_of_the_mean(self, mean, answer):
        """√Σsd²/n at three seeds of sd 0.05 is 0.0289; its 99 % point 0.0672."""
        point = stats.norm.isf(0.01) * np.sqrt(3 * 0.05**2) / 3
        assert (mean > point) == (answer == "carries")
        (found,) = answers(both(mean, mean, mean, null_sd=0.05), blocks=(1,))
        assert (found.answer, found.cos.point) == (answer, pytest.approx(point))

    def test_more_seeds_make_a_small_alignment_clear(self):
        """The answer about a true 0.08 is not lost because there are more seeds to be unlucky with."""
        stream = np.random.default_rng(0)
        found = [said(both(*stream.normal(0.08, 0.03, size=n)), blocks=(1,))[0] for n in (20,) * 40]
        assert found.count("carries") > 35
        assert "below" not in found


class TestHolm:
    def test_below_is_holms_step_down_over_the_taps(self):
        """Four taps under δ by as many margins; the p-values of their t tests, sorted, against 0.05/4, /3, /2, /1."""
        spread = np.array([-1.0, 0.0, 1.0]) * 0.004
        means = (0.5, 0.02, 0.041, 0.0412, 0.0425)
        taps = [{**NARROW, "cos": tuple(m + s for m in means), "cos_F": 0.45} for s in spread]
        p = [stats.ttest_1samp(m + spread, 0.05, alternative="less").pvalue for m in means[1:]]
        rejected, allowed = set(), True
        for rank, i in enumerate(np.argsort(p)):
            allowed = allowed and p[i] <= 0.05 / (4 - rank)
            rejected |= {int(i)} if allowed else set()
        assert 0 < len(rejected) < sum(value < 0.05 for value in p)  # single tests would reject more
        found = said(taps)
        assert found == ["below" if i in rejected else "open" for i in range(4)]

    def test_values_without_spread_are_below_or_not(self):
        assert (below_p((0.02, 0.02), 0.05), below_p((0.06, 0.06), 0.05)) == (0.0, 1.0)


class TestWeighted:
    """`cos_F`, the cosine that rows with a large gradient decide."""

    def test_the_worse_of_the_two_counts(self):
        worse = at_tap_1(0.008, 0.01, 0.012, name="cos_F", cos=0.5)
        (found, *rest) = answers(worse)
        assert found.answer == "below"
        assert found.worst is found.weighted
        assert {other.answer for other in rest} == {"carries"}
        assert said(at_tap_1(0.008, 0.01, 0.012, cos_F=0.5))[0] == "below"  # and the other way round

    @pytest.mark.parametrize(("weighted", "answer"), [(0.44, "open"), (0.46, "carries")])
    def test_under_half_of_the_cosine_it_is_open_at_best(self, weighted, answer):
        found = said(at_tap_1(weighted, weighted, weighted, name="cos_F", cos=0.9), blocks=(1,))
        assert found == [answer]

    def test_its_upper_bound_is_what_is_compared_and_it_has_a_null_of_its_own(self):
        """Mean 0.4, but the seeds allow more than half of 0.9."""
        assert said(at_tap_1(0.3, 0.4, 0.5, name="cos_F", cos=0.9), blocks=(1,)) == ["carries"]
        rows = at_tap_1(0.3, 0.3, 0.3, name="cos_F", cos=0.9)
        assert said(rows, blocks=(1,), limits=LIMITS.changed(weighted_share=0.3)) == ["carries"]
        assert said(both(0.1, 0.1, 0.1, null_sd_F=0.1), blocks=(1,)) == ["open"]


class TestStage:
    """The weights of the stage that ends at the tap."""

    def test_evidence_of_the_weights_makes_open_what_is_below(self):
        pairs = ((0.008, 0.3), (0.01, 0.4), (0.012, 0.35))
        blind = [{**NARROW, "cos": c, "cos_F": c, "stage_cos": s} for c, s in pairs]
        for found in answers(blind):
            assert (found.answer, found.spared) == ("open", True)
            assert found.stage is not None
            assert found.stage.mean == pytest.approx(0.35)

    @pytest.mark.parametrize(
        "stage",
        [{"stage_cos": 0.04}, {"stage_cos": 0.1, "stage_null_sd": 0.1}, {"stage_cos": None}, {"stage_cos": ()}],
    )
    def test_weights_under_delta_within_their_null_or_unmeasured_spare_nothing(self, stage):
        blind = [{**NARROW, "cos": c, "cos_F": c, **stage} for c in (0.008, 0.01, 0.012)]
        assert [(found.answer, found.spared) for found in answers(blind)] == [("below", False)] * 4

    def test_weights_never_make_a_tap_carry(self):
        assert said([{**NARROW, "cos": c, "stage_cos": 0.9} for c in (0.0, 0.1, 0.2)], blocks=(1,)) == ["open"]


class TestSigns:
    def test_anti_aligned_is_called_so(self):
        against = answers([{**BLIND, "cos": c, "cos_F": c} for c in (-0.5, -0.51, -0.52)])
        assert [(found.answer, found.opposed) for found in against] == [("below", True)] * 4
        blind = answers([{**BLIND, "null_sd": 0.05, "cos": c, "cos_F": c} for c in (-0.01, 0.0, 0.005)])
        assert [(found.answer, found.opposed) for found in blind] == [("below", False)] * 4

    def test_what_lies_below_delta_may_still_not_be_zero(self):
        (found,) = answers(both(0.03, 0.031, 0.032, null_sd=0.005), blocks=(1,))
        assert (found.answer, found.cos.low > 0, found.cos.above_null) == ("below", True, True)


class TestOneRun:
    def test_one_run_is_never_below(self):
        for value in (-0.9, 0.0, 0.01):
            assert said([{**BLIND, "cos": value, "cos_F": value}]) == ["open"] * 4

    def test_its_bounds_are_those_of_its_null(self):
        (found, *_) = answers([{}])
        reach = stats.norm.isf(0.05) * 0.05
        assert (found.cos.low, found.cos.high) == pytest.approx((0.5 - reach, 0.5 + reach))
        assert (found.answer, found.cos.point) == ("carries", pytest.approx(0.13))  # the simulated 99 % point
        (found, *_) = answers([{}], limits=LIMITS.changed(orientation=0.05))
        assert found.cos.point == pytest.approx(0.13 * stats.norm.isf(0.05) / stats.norm.isf(0.01))


class TestNotMeasured:
    def test_tokens_of_an_earlier_schema_have_no_null(self):
        tokens = make_facts(tap_shapes=((8,), (4, 8), (4, 8), (8,), (8,)))
        old = {"null_q99": (), "null_sd_F": ()}
        assert "taps 1, 2" in missing(old, facts=tokens)
        assert said(old) == said({}, facts=tokens) == ["carries"] * 4  # flat states are sound

    @pytest.mark.parametrize("name", ["cos", "cos_F", "null_sd"])
    def test_a_tap_without_rows_in_one_seed(self, name):
        value = {"cos": 0.5, "cos_F": 0.45, "null_sd": 0.05}[name]
        lost = {name: (value, value, None, value, value)}
        assert "tap 2" in missing([{}, lost, {}])
        assert said([{}, lost, {}], blocks=(1, 3, 4)) == ["carries"] * 3

    @pytest.mark.parametrize("seeds", [1, 3])
    def test_one_feature_puts_perfect_alignment_out_of_reach(self, seeds):
        """Turning one feature at random gives ±1, so that 1 is not above 99 % of it."""
        facts = make_facts(tap_shapes=((1,),) * 5)
        one = {"cos": 1.0, "cos_F": 1.0, "null_sd": 1.0, "null_sd_F": 1.0, "null_q99": 1.0}
        assert "tap 1" in missing(one, facts=facts, seeds=seeds)


class TestNoisyRules:
    """A rule that draws noise in every step is judged by β over its own draws."""

    FACTS = make_facts(rule=RuleFacts(name="fg", label="FG", draws_noise=True))
    SMALL: ClassVar = {"cos": 0.01, "cos_F": 0.01, "stage_cos": 0.0}

    def answer(self, *values: float, se: float = 0.01, null: float = 1e-6, noise: float = 0.9) -> list[str]:
        taps = [{**self.SMALL, "beta": value, "beta_se": se, "beta_null_sd": null} for value in values]
        return said([tap | {"draw_noise": noise} for tap in taps], facts=self.FACTS, blocks=(1,))

    @pytest.mark.parametrize(
        ("values", "others", "answer"),
        [
            ((0.9, 1.0, 1.1), {}, "carries"),  # unbiased, however small its cosine
            ((0.01, 0.012, 0.014), {}, "below"),
            ((-1.0, 1.0, 3.0), {}, "open"),
            # credit of many times the gradient's size has a large β by chance, and a null that is as large
            ((40.0, 50.0, 60.0), {"null": 1.0}, "carries"),
            ((40.0, 50.0, 60.0), {"null": 50.0}, "open"),
            ((169.0,), {"null": 200.0}, "open"),
            ((0.9, 1.0, 1.1), {"noise": 0.0}, "below"),  # only says that it draws noise: judged by the cosine
        ],
    )
    def test_answers_by_the_projection(self, values, others, answer):
        assert self.answer(*values, **others) == [answer]
        assert said([self.SMALL] * 3, blocks=(1,)) == ["below"]  # the same cosines of a rule without noise

    def test_of_one_run_the_draws_decide(self):
        """16 draws: the lower bound is β − t₁₅ · se."""
        reach = stats.t.ppf(0.95, 15)
        assert self.answer(1.0, se=0.94 / reach) == ["carries"]
        assert self.answer(1.0, se=0.96 / reach) == ["open"]
        assert self.answer(0.0, se=0.001) == ["open"]  # never below

    def test_without_draws_it_is_not_measured(self):
        assert missing({}, facts=self.FACTS)


class TestWhatWouldTell:
    def test_power(self):
        """At d = 256 rows of one direction have a null of 0.0202 at most, and 0.064 is seen with 80 %."""
        sees = (stats.norm.isf(0.01) + stats.norm.isf(0.2)) * 0.0202
        assert sees == pytest.approx(0.064, abs=5e-4)
        found = judge_seeds("CS005", make_moments(seeds=1, taps={"null_sd": 0.0202}))
        assert f"{sees:.3f}" in found.message

    def tell(self, **others: Any) -> str:
        """Of seeds with mean 0.1, sd 0.05."""
        moments = make_moments(taps=both(0.05, 0.1, 0.15, **others))
        found = judge_taps(moments, (1,), LIMITS)
        assert not isinstance(found, str)
        return what_would_decide(found, moments, LIMITS)

    def test_the_number_of_seeds_is_that_of_a_bound_with_80_percent_power(self):
        needed = np.ceil(((stats.norm.isf(0.05) + stats.norm.isf(0.2)) * 0.05 / 0.05) ** 2)
        assert re.findall(r"\d+", self.tell()) == [f"{needed:.0f}"]

    def test_rows_do_not_help_where_the_null_itself_is_wider_than_delta(self):
        assert self.tell(null_sd=0.04) != self.tell(null_sd=0.06)


def test_what_is_known_of_one_moment_is_of_its_snapshot_taps_and_limits_alone():
    """It is computed once for all checks that ask, and is nothing that another moment or limit would be told."""
    moment, other = make_moments(taps=both(0.3, 0.4))
    first = judge_taps([moment], BLOCKS, LIMITS)
    assert judge_taps([moment], list(BLOCKS), LIMITS) is first
    assert [a.tap for a in judge_taps([moment], (2, 3), LIMITS)] == [2, 3]
    assert [a.answer for a in judge_taps([moment], (1,), replace(LIMITS, alignment=0.39))] == ["open"]
    (known,) = judge_taps([moment], (1,), LIMITS)
    assert (known.answer, known.cos.mean) == ("carries", 0.3)
    (moved,) = judge_taps([replace(moment, snapshot=other.snapshot)], (1,), LIMITS)
    assert moved.cos.mean == 0.4
