"""Credit at the taps, over seeds: each tap's alignment as one estimate with three answers.

The estimand is the mean over seeds of `cos`, and of `cos_F`; the worse answer counts. A tap *carries* credit if the
lower bound reaches δ and the mean is above the null of the mean, is *below* if the upper bound, Holm over the taps,
stays under δ, and is *open* otherwise. The cosine of the stage's weights can make open what is below. A rule that draws
noise in every step is judged by β, the projection of the mean of its own draws on the gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from creditscope.auditing.methods import Moment
from creditscope.auditing.quantiles import t_point
from creditscope.auditing.stats import below_p, holm, t_bounds, z_limit
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts, Snapshot
from creditscope.record.schema import OWN_DRAWS
from creditscope.text import name_all, number

CreditAnswer = Literal["carries", "below", "open"]
POWER = 0.8
"""With which what is stated to be seen would be seen."""
DRAWN = 0.01
"""Share of the credit that is noise of the draw, from which on a rule that says it draws noise is taken at its word."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its one-sided bounds, and the sd of its null (0: it has none)."""

    values: tuple[float, ...]
    low: float
    high: float
    null: float
    point: float
    """What the mean must exceed to be above its null."""

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def above_null(self) -> bool:
        return self.mean > self.point

    def carries(self, limit: float) -> bool:
        return self.low >= limit and self.above_null

    def __str__(self) -> str:
        """Mean and bounds; a single run has none but those of its null."""
        return "{} [{}, {}]".format(*(number(value, "+.3f") for value in (self.mean, self.low, self.high)))


@dataclass(frozen=True)
class TapAnswer:
    """One tap's answer and the estimates that it rests on."""

    tap: int
    answer: CreditAnswer
    cos: Estimate
    weighted: Estimate | None
    """`cos_F`; None for a rule that is judged by β."""
    stage: Estimate | None
    """The cosine of the stage's weights, where it was measured."""
    spared: bool = False
    """Whether the weights made it open."""

    @property
    def worst(self) -> Estimate:
        """Of the two the one with the lower bound that is lower."""
        return self.cos if self.weighted is None or self.cos.low <= self.weighted.low else self.weighted

    @property
    def under(self) -> Estimate:
        """Of the two the one with the upper bound that is lower: what speaks for too little."""
        return self.cos if self.weighted is None or self.cos.high <= self.weighted.high else self.weighted

    @property
    def opposed(self) -> bool:
        """Whether it points the other way: anti-aligned, which is not chance."""
        return self.cos.high < 0 and self.cos.mean < -self.cos.point

    def __str__(self) -> str:
        if self.answer == "below" and self.opposed:
            said = f"anti-aligned, {self.cos}"
        elif self.answer == "below":
            e = self.under
            name = "" if e is self.cos else "cos_F "
            zero = "; not zero" if e.low > 0 and e.above_null else ""
            said = f"{name}at most {number(e.high, '+.3f')}{zero}: {e}"
        else:
            said = f"{self.cos}" if self.worst is self.cos else f"{self.cos}, cos_F {self.worst}"
        weights = f", yet its weights {self.stage}" if self.spared and self.stage else ""
        return f"{self.tap} ({said}{weights})"


def asked_taps(facts: Facts) -> list[int]:
    """Block taps without exact credit."""
    return [tap for tap in facts.gamma_taps if tap in facts.inexact_taps]


def stem_taps(facts: Facts) -> list[int]:
    """The stem's tap, if it has no exact credit: told of, but it does not decide."""
    return [tap for tap in facts.inexact_taps if tap not in facts.gamma_taps]


def cut_off_taps(moments: Sequence[Moment]) -> list[int]:
    """Taps that would be handed the exact gradient, but no row of any run has one there."""
    facts = moments[0].facts
    about = facts.rule.approximates == "gradient"
    return [tap for tap in facts.exact_taps if about and not any(m.snapshot.taps.rows_used[tap] for m in moments)]


def not_about_gradients(moments: Sequence[Moment]) -> str | None:
    """Why alignment with the gradient is no question here, or None."""
    facts = moments[0].facts
    if facts.rule.approximates != "gradient":
        return f"the rule approximates {facts.rule.approximates}, not the gradient"
    if asked_taps(facts):
        return None
    if lost := cut_off_taps(moments):
        return f"no gradient arrives at {name_all('tap', lost)}"
    return "every block tap is handed the exact gradient"


def judge_taps(moments: Sequence[Moment], taps: Sequence[int], limits: Thresholds) -> list[TapAnswer] | str:
    """The answer of each of the taps over the seeds of the moments; in words, what was not measured.

    Of a single run nothing is said to be below: its feedback could have been drawn otherwise.
    """
    if len(moments) > 1:
        return _judge_taps(moments, taps, limits)
    known, asked = moments[0].answers, (tuple(taps), limits)
    if asked not in known:
        known[asked] = _judge_taps(moments, taps, limits)
    return known[asked]


def _judge_taps(moments: Sequence[Moment], taps: Sequence[int], limits: Thresholds) -> list[TapAnswer] | str:
    noisy = _draws_noise(moments, taps)
    names = ("beta", "beta_null_sd") if noisy else ("cos", "cos_F")
    if missing := [tap for tap in taps if not all(_is_known(m, tap, names) for m in moments)]:
        return _why_missing(moments, missing, noisy)
    own = [_estimate(moments, names[0], tap, limits) for tap in taps]
    for tap, e in zip(taps, own, strict=True):
        if e.point >= 1 - 1e-9 and not noisy:
            return (
                f"too few features turn at tap {tap}: even perfect alignment cannot be told from a random orientation"
            )
    weighted = [None if noisy else _estimate(moments, names[1], tap, limits) for tap in taps]
    stages = [_stage(moments, tap, limits) for tap in taps]
    found, delta, below = [], limits.alignment, [False] * len(taps)
    if len(moments) > 1:
        p = [below_p(e.values, delta) for e in (*own, *weighted) if e is not None]
        below = holm(p, level=1 - limits.alignment_confidence)
    for i, (tap, cos, other, stage) in enumerate(zip(taps, own, weighted, stages, strict=True)):
        under = any(below[i :: len(taps)])
        spared = under and stage is not None and stage.carries(delta)
        # cos_F must carry credit too, and not be far below cos
        held = other is None or (other.carries(delta) and other.high >= limits.weighted_share * cos.mean)
        answer = ("open" if spared else "below") if under else "carries" if cos.carries(delta) and held else "open"
        found.append(TapAnswer(tap, answer, cos, other, stage, spared))
    return found


def say_uncredited(moments: Sequence[Moment], tap: int) -> str:
    """How many rows have a gradient at a tap and get no credit, in the run with most of them; nothing if none."""
    taps = [(m.snapshot.taps, m.snapshot.rows) for m in moments]
    told = [(taps.rows_used[tap], rows - taps.rows_no_gradient[tap]) for taps, rows in taps]
    without, rows = max((rows - used, rows) for used, rows in told)
    if without <= 0:
        return ""
    return f"{without:,} of {rows:,} rows with a gradient at tap {tap} get no credit, which cos leaves out, not cos_F"


def seen_above(null: float, limits: Thresholds) -> float:
    """The alignment that would be seen above a null of this sd with 80 % power."""
    return (z_limit(limits.orientation) + z_limit(1 - POWER)) * null


def null_of_mean(sds: Sequence[float]) -> float:
    """The sd of a mean over seeds under their nulls, √Σsd²/n."""
    return math.sqrt(sum(sd * sd for sd in sds)) / len(sds)


def what_would_decide(answers: Sequence[TapAnswer], moments: Sequence[Moment], limits: Thresholds) -> str:
    """Whether more seeds, or more rows, would make open taps answer; and about how many seeds."""
    n, delta = len(moments), limits.alignment
    if n < 2:
        return "a single run cannot tell more; train several seeds"
    # the weights spare it, or both cosines carry credit and cos_F is so far below cos that it is open all the same
    stuck = [a for a in answers if a.spared or (a.weighted and all(e.carries(delta) for e in (a.cos, a.weighted)))]
    if len(stuck) == len(answers):
        few = say_uncredited(moments, stuck[0].tap) or "a few rows decide cos_F"
        return f"more seeds would not decide: {'the weights say otherwise than the taps' if stuck[0].spared else few}"
    answers = [a for a in answers if a not in stuck]
    sds = [s for m in moments for a in answers if (s := _known(m.snapshot.taps.null_sd, a.tap)) is not None]
    wide = bool(sds) and sum(sds) / len(sds) > delta
    needed = max((_seeds_needed(a.worst, limits) for a in answers), default=n)
    about = f"about {needed:,} seeds" if needed <= 1000 else "over 1,000 seeds"
    rows = " (more rows would not: the null itself is wider than δ)" if wide else ", or more rows"
    return f"{about} would decide{rows}"


def _seeds_needed(e: Estimate, limits: Thresholds) -> int:
    """For the bound to clear δ with 80 % power if mean and sd stay as they are; at least one more than now."""
    n, mean = len(e.values), e.mean
    sd = math.sqrt(sum((v - mean) ** 2 for v in e.values) / (n - 1))
    gap = abs(mean - limits.alignment)
    if gap == 0:
        return 10**6
    factor = z_limit(1 - limits.alignment_confidence) + z_limit(1 - POWER)
    return max(n + 1, math.ceil(min((factor * sd / gap) ** 2, 1e6)))


def _draws_noise(moments: Sequence[Moment], taps: Sequence[int]) -> bool:
    """Whether the rule says that it draws noise, and, where that was measured, does."""
    shares = [s for m in moments for tap in taps if (s := _known(m.snapshot.taps.draw_noise, tap)) is not None]
    return any(m.facts.rule.draws_noise for m in moments) and max(shares, default=1.0) > DRAWN


def _estimate(moments: Sequence[Moment], name: str, tap: int, limits: Thresholds) -> Estimate:
    """Over seeds by t; of one run by its null, which is how much another draw of the feedback would change it.

    β of one run by its own draws too. Its null grows with the credit, so that size alone says nothing.
    """
    values, first = tuple(_value(m.snapshot, name, tap) for m in moments), moments[0].snapshot
    null_name = {"cos": "null_sd", "cos_F": "null_sd_F", "beta": "beta_null_sd"}[name]
    # earlier records have null_sd for cos_F too
    null = null_of_mean([_value(m.snapshot, null_name, tap, _known(m.snapshot.taps.null_sd, tap)) for m in moments])
    point, q99 = z_limit(limits.orientation) * null, _known(first.taps.null_q99, tap)
    confidence = limits.alignment_confidence
    reach = z_limit(1 - confidence) * null
    if len(values) == 1 and name == "beta":
        reach = t_point(OWN_DRAWS - 1, confidence) * math.hypot(_value(first, "beta_se", tap), null)
    elif len(values) == 1 and name == "cos" and q99 is not None:  # of 1 %; others by the ratio of normal points
        point = q99 * z_limit(limits.orientation) / z_limit(0.01)
    return _bounded(values, reach, confidence, null, point)


def _stage(moments: Sequence[Moment], tap: int, limits: Thresholds) -> Estimate | None:
    """The cosine of the weights of the stage that ends at the tap, of several seeds that all have it."""
    taps = [m.snapshot.taps for m in moments]
    both = [(_known(t.stage_cos, tap), _known(t.stage_null_sd, tap)) for t in taps]
    known = [(v, sd) for v, sd in both if v is not None and sd is not None]
    if len(known) < max(len(moments), 2):
        return None
    null = null_of_mean([sd for _, sd in known])
    values = tuple(v for v, _ in known)
    return _bounded(values, 0.0, limits.alignment_confidence, null, z_limit(limits.orientation) * null)


def descent_estimate(
    moments: Sequence[Moment], tap: int, name: str, *, over_null: bool, confidence: float
) -> Estimate | None:
    """Of `descent` or `descent_stage`, as it is or less the mean of its null; None where it was not measured.

    Over seeds by t; of one run by the spread over its rotations.
    """
    values, reach = [], 0.0
    for moment in moments:
        taps, turns = moment.snapshot.taps, moment.snapshot.descent_turns
        value, null, sd = (_known(getattr(taps, n), tap) for n in (name, f"{name}_null", f"{name}_null_sd"))
        if value is None or null is None or sd is None:
            return None
        values.append(value - null * over_null)
        reach = t_point(turns - 1, confidence) * sd * math.sqrt(1 + 1 / turns) if len(moments) == 1 else 0.0
    return _bounded(tuple(values), reach, confidence)


def _bounded(
    values: tuple[float, ...], reach: float, confidence: float, null: float = 0.0, point: float = 0.0
) -> Estimate:
    """With t bounds over seeds; of a single run as far as `reach`."""
    if len(values) == 1:
        return Estimate(values, values[0] - reach, values[0] + reach, null, point)
    return Estimate(values, *t_bounds(values, confidence=confidence), null, point)


def _is_known(moment: Moment, tap: int, names: Sequence[str]) -> bool:
    taps = moment.snapshot.taps
    if any(_known(getattr(taps, name), tap) is None for name in names):
        return False
    if "beta" in names:
        return True
    # records of an earlier schema have the null of flat states only
    return _known(taps.null_sd, tap) is not None and (bool(taps.null_q99) or len(moment.facts.tap_shapes[tap]) < 2)


def _why_missing(moments: Sequence[Moment], taps: Sequence[int], noisy: bool) -> str:
    old = all(_known(m.snapshot.taps.cos, tap) is not None for m in moments for tap in taps)
    where = name_all("tap", taps)
    drawn = [note for m in moments for note in m.snapshot.notes if note.startswith("own draws")]
    if noisy and drawn:
        return drawn[0]
    if noisy and old:
        return f"the mean of the rule's own draws was not measured at {where} ({moments[0].remedy('full')})"
    if old:
        return f"the null of states with places is not on record at {where} (run it again)"
    return f"no usable rows at {where}"


def _value(snapshot: Snapshot, name: str, tap: int, otherwise: float | None = None) -> float:
    found = _known(getattr(snapshot.taps, name), tap)
    found = otherwise if found is None else found
    assert found is not None
    return found


def _known(series: Sequence[float | None], tap: int) -> float | None:
    return series[tap] if series else None
