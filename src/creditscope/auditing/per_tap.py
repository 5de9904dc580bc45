"""What each tap was told, over seeds: every per-tap quantity of the last snapshots with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.auditing.depth import rewound_blocks
from creditscope.auditing.methods import Method, Moment
from creditscope.auditing.stats import INTERVALS, Interval, IntervalKind, geometric_interval, known_mean
from creditscope.auditing.tap_credit import CreditAnswer, asked_taps, judge_taps, null_of_mean, stem_taps
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts, Snapshot


@dataclass(frozen=True, kw_only=True)
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


LINEAR = (
    *("cos", "cos_F", "z", "cos_input", "stage_cos", "beta", "draw_noise", "fresh_cos", "permuted_cos"),
    *("descent", "rho", "common", "drift"),
)
GEOMETRIC = ("h_norm", "g_norm", "g_rel", "ratio")


def growths(facts: Facts, snapshot: Snapshot) -> dict[int, float]:
    """Over every residual stage of equal shape, by tap."""
    rms, found = snapshot.taps.h_rms, {}
    for tap in comparable_taps(facts):
        above, below = rms[tap], rms[tap - 1]
        if above is not None and below:
            found[tap] = above / below
    return found


def largest_growth(facts: Facts, snapshot: Snapshot) -> float | None:
    """Over one block; None where no two taps can be compared."""
    return max(growths(facts, snapshot).values(), default=None)


def comparable_taps(facts: Facts) -> list[int]:
    """Residual taps of the same shape as the tap before."""
    return [t for t, adds in enumerate(facts.residual) if adds and facts.tap_shapes[t] == facts.tap_shapes[t - 1]]


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
    snapshots = [m.snapshot for m in moments]
    untrained = [m.untrained for m in moments if m.untrained]
    grown = [g for m in moments if (g := growths(m.facts, m.snapshot).get(tap)) is not None]
    found = {name: _interval(_values(snapshots, name, tap), kind) for name in LINEAR}
    found["probe"] = _interval(_probes(snapshots, tap), kind)
    found |= {name: _geometric(_values(snapshots, name, tap), kind) for name in GEOMETRIC}
    return TapAudit(
        tap=tap,
        name=method.facts.taps[tap],
        exact=tap in method.facts.exact_taps,
        answer=answer,
        null_sd=_null(_values(snapshots, "null_sd", tap)),
        stage_null_sd=_null(_values(snapshots, "stage_null_sd", tap)),
        descent_null=known_mean(_values(snapshots, "descent_null", tap)),
        descent_null_sd=known_mean(_values(snapshots, "descent_null_sd", tap)),
        acquired=_interval(_acquired(snapshots, tap), kind),
        growth=_geometric(grown, kind),
        g_noise=max(_values(snapshots, "g_noise", tap), default=None),
        probe_untrained=_interval(_probes(untrained, tap), kind),
        rewind_loss=_interval([lost for s in snapshots if (lost := rewound_blocks(s).get(tap)) is not None], kind),
        skip_loss=_interval(_skip_losses(snapshots, tap), kind),
        **found,
    )


def _values(snapshots: Sequence[Snapshot], name: str, tap: int) -> list[float]:
    """What the seeds measured; an empty tuple and None both mean: nothing."""
    series = [getattr(s.taps, name) for s in snapshots]
    return [values[tap] for values in series if values and values[tap] is not None]


def _null(sds: list[float]) -> float | None:
    return null_of_mean(sds) if sds else None


def _skip_losses(snapshots: Sequence[Snapshot], tap: int) -> list[float]:
    both = [(s.accuracy, after) for s in snapshots for after in _values([s], "skip_one", tap)]
    return [accuracy - after for accuracy, after in both if accuracy is not None]


def _probes(snapshots: Sequence[Snapshot], tap: int) -> list[float]:
    series = [s.tap_probe for s in snapshots if s.tap_probe]
    return [probe for values in series if (probe := values[tap]) is not None]


def _acquired(snapshots: Sequence[Snapshot], tap: int) -> list[float]:
    both = [(s.taps.cos[tap], s.taps.fresh_cos[tap]) for s in snapshots if s.taps.fresh_cos]
    return [own - fresh for own, fresh in both if own is not None and fresh is not None]


def _interval(values: list[float], kind: IntervalKind) -> Interval | None:
    return INTERVALS[kind](values) if values else None


def _geometric(values: list[float], kind: IntervalKind) -> Interval | None:
    """None too where a size is exactly zero, which has no logarithm."""
    return geometric_interval(values, kind=kind) if values and min(values) > 0 else None
