"""What each tap was told, over seeds: every per-tap quantity of the last snapshots with its interval."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from creditscope.auditing.depth import rewound_blocks
from creditscope.auditing.methods import Method, Moment
from creditscope.auditing.stats import INTERVALS, Interval, IntervalKind, geometric_interval, known_mean
from creditscope.auditing.tap_credit import CreditAnswer, asked_taps, judge_taps, null_of_mean, stem_taps
from creditscope.auditing.thresholds import Thresholds
from creditscope.record.schema import TapMeasures
from creditscope.record.table import growths


@dataclass(frozen=True, kw_only=True, slots=True)
class TapAudit:
    """One tap of a method; intervals are over seeds, None where nothing was measured."""

    tap: int
    name: str
    exact: bool
    """Whether it is handed the exact gradient."""
    cos: Interval | None
    cos_F: Interval | None  # noqa: N815 (the field's own symbol)
    answer: CreditAnswer | None
    """What the seeds say of it: carries credit, is below δ, or open; None where the cosine is no question."""
    null_sd: float | None
    """Sd of the mean cosine under random orientations, √Σsd²/n over the seeds."""
    z: Interval | None
    cos_input: Interval | None
    """The published reading: cosine with the gradient at the tap before."""
    stage_cos: Interval | None
    """Cosine of the gradients of the stage's weights, the rule's and BP's."""
    stage_null_sd: float | None
    """Of it, what `null_sd` is of `cos`."""
    beta: Interval | None
    """Of a rule that draws noise: projection of the mean of its own draws on the gradient; unbiased: 1."""
    draw_noise: Interval | None
    fresh_cos: Interval | None
    acquired: Interval | None
    """Alignment acquired: cos − fresh_cos, within each seed."""
    permuted_cos: Interval | None
    descent: Interval | None
    descent_null: float | None
    descent_null_sd: float | None
    rho: Interval | None
    growth: Interval | None
    """RMS of the state over that of the tap before, where a residual block lies between; geometric."""
    h_norm: Interval | None
    """Median ‖h‖ per sample; geometric."""
    g_norm: Interval | None
    """Median ‖g‖ per sample; geometric."""
    g_rel: Interval | None
    g_noise: float | None
    """The worst seed's."""
    common: Interval | None
    drift: Interval | None
    ratio: Interval | None
    probe: Interval | None
    probe_untrained: Interval | None
    rewind_loss: Interval | None
    """Accuracy lost by putting the block before it alone back to where it began."""
    skip_loss: Interval | None
    """Accuracy lost by skipping that block."""


GEOMETRIC = ("growth", "h_norm", "g_norm", "g_rel", "ratio")
"""Sizes, which are averaged as logarithms."""


def audit_taps(method: Method, limits: Thresholds, *, kind: IntervalKind) -> tuple[TapAudit, ...]:
    """Every tap of a method, over the seeds that did not diverge."""
    moments = [Moment.of(record) for record in method.whole]
    answers = _answers(moments, limits)
    return tuple(_audit_tap(method, moments, tap, answers.get(tap), kind) for tap in range(len(method.facts.taps)))


def _answers(moments: Sequence[Moment], limits: Thresholds) -> dict[int, CreditAnswer]:
    """By tap, as CS005 judges: the block taps without exact credit together, the stem's alone."""
    if not moments or moments[0].facts.rule.approximates != "gradient":
        return {}
    facts, found = moments[0].facts, {}
    for taps in filter(None, (asked_taps(facts), stem_taps(facts))):
        answers = judge_taps(moments, taps, limits)
        found |= {} if isinstance(answers, str) else {a.tap: a.answer for a in answers}
    return found


def _audit_tap(
    method: Method, moments: Sequence[Moment], tap: int, answer: CreditAnswer | None, kind: IntervalKind
) -> TapAudit:
    measures, known = [_measures(moment, tap) for moment in moments], defaultdict[str, list[float]](list)
    for measure, value in [item for found in measures for item in found.items()]:
        if value is not None:
            known[measure].append(value)
    names = [f.name for f in fields(TapAudit) if f.type == (Interval | None)]
    intervals: dict[str, Any] = {n: _interval(known[n], kind, geometric=n in GEOMETRIC) for n in names}
    return TapAudit(
        tap=tap,
        name=method.facts.taps[tap],
        exact=tap in method.facts.exact_taps,
        answer=answer,
        null_sd=null_of_mean(known["null_sd"]) if known["null_sd"] else None,
        stage_null_sd=null_of_mean(known["stage_null_sd"]) if known["stage_null_sd"] else None,
        descent_null=known_mean(known["descent_null"]),
        descent_null_sd=known_mean(known["descent_null_sd"]),
        g_noise=max(known["g_noise"], default=None),
        **intervals,
    )


def _measures(moment: Moment, tap: int) -> dict[str, float | None]:
    """What one run measured at a tap, and what follows from it; None for what is not there."""
    snapshot, untrained = moment.snapshot, moment.untrained
    found = {f.name: _at(getattr(snapshot.taps, f.name), tap) for f in fields(TapMeasures)}
    return found | {
        "acquired": _less(found["cos"], found["fresh_cos"]),
        "growth": growths(moment.facts, snapshot).get(tap),
        "probe": _at(snapshot.tap_probe, tap),
        "probe_untrained": _at(untrained.tap_probe, tap) if untrained else None,
        "rewind_loss": rewound_blocks(snapshot).get(tap),
        "skip_loss": _less(snapshot.accuracy, found["skip_one"]),
    }


def _at(series: Sequence[float | None], tap: int) -> float | None:
    return series[tap] if series else None


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _interval(values: list[float], kind: IntervalKind, *, geometric: bool) -> Interval | None:
    """None too where a size is exactly zero, which has no logarithm."""
    if not values or (geometric and min(values) <= 0):
        return None
    return geometric_interval(values, kind=kind) if geometric else INTERVALS[kind](values)
