"""The usual numbers and the published diagnostics, each at its published threshold, as rows of the decision table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from creditscope.auditing.decision import Conclusion, Decision, Kind, with_epochs
from creditscope.auditing.growth import comparable_taps, largest_growth
from creditscope.auditing.methods import Method, accuracies
from creditscope.auditing.moment import Moment, first_epoch
from creditscope.auditing.stats import known_mean
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GAIN, PUBLISHED_GROWTH, USUAL_GAMMA
from creditscope.record import Record
from creditscope.text import amount, number

Judged = tuple[Conclusion, float | None]
"""What a criterion concludes, and the number it looked at."""


@dataclass(frozen=True)
class Criterion:
    """A rule of thumb that looks at one moment of one run."""

    name: str
    kind: Kind
    judge: Callable[[Moment], Judged]
    traced: bool = True
    """Whether the epoch of first firing means something; accuracy is at chance before training anyway."""

    def fires(self, moment: Moment) -> bool:
        """Whether it walks the run back."""
        return self.judge(moment)[0] == "walks back"


def judge_criteria(method: Method, share: float) -> list[Decision]:
    """Every criterion on every seed, each followed by the method over seeds."""
    rows = []
    for criterion in CRITERIA:
        seeds = [_judge_seed(method, seed, record, criterion) for seed, record in method.runs.items()]
        rows += [*seeds, _over_seeds(seeds, share)]
    return [*rows, *_gain(method), *_stability(method)]


def _conclude(fires: bool | None) -> Conclusion:
    return "open" if fires is None else "walks back" if fires else "accepts"


def _accuracy(moment: Moment) -> Judged:
    """Above chance is taken as learning."""
    accuracy, chance = moment.snapshot.accuracy, moment.facts.chance
    if chance is None:
        return "not applicable", accuracy
    return _conclude(None if accuracy is None else accuracy <= chance), accuracy


def _pair(moment: Moment) -> Judged:
    """Accuracy above chance and a positive mean cosine."""
    alone, gamma = _accuracy(moment)[0], moment.snapshot.gamma
    if gamma is None:
        return "open", gamma
    return ("walks back" if gamma <= USUAL_GAMMA else alone), gamma


def _growth(moment: Moment) -> Judged:
    if not comparable_taps(moment.facts):
        return "not applicable", None
    largest = largest_growth(moment.facts, moment.snapshot)
    return _conclude(None if largest is None else largest > PUBLISHED_GROWTH), largest


def _floor(moment: Moment) -> Judged:
    top = moment.snapshot.taps.g_norm[-1]
    return _conclude(None if top is None else top < PUBLISHED_FLOOR), top


CRITERIA = (
    Criterion("accuracy", "usual", _accuracy, traced=False),
    Criterion("accuracy + Γ", "usual", _pair, traced=False),
    Criterion(f"growth > {PUBLISHED_GROWTH:g}", "published", _growth),
    Criterion(f"‖g_L‖ < {number(PUBLISHED_FLOOR, 'g')}", "published", _floor),
)
GAIN = f"gain < {100 * PUBLISHED_GAIN:g} pp"
STABILITY = "stability (drift)"


def _judge_seed(method: Method, seed: int, record: Record, criterion: Criterion) -> Decision:
    if record.provenance.status == "diverged":
        return _row(method, seed, criterion.name, criterion.kind, ("open", None))
    first = first_epoch(record, lambda s: criterion.fires(Moment.of(record, s))) if criterion.traced else None
    row = _row(method, seed, criterion.name, criterion.kind, criterion.judge(Moment.of(record)))
    return replace(row, first_epoch=first, last_first_epoch=first)


def _over_seeds(rows: Sequence[Decision], share: float) -> Decision:
    """Walks back where at least this share of the seeds does; the value is the mean."""
    conclusions: list[Conclusion] = [row.conclusion for row in rows]
    hits = conclusions.count("walks back")
    if hits and hits >= share * len(rows):
        conclusion: Conclusion = "walks back"
    elif hits or "open" in conclusions:
        conclusion = "open"
    else:
        conclusion = conclusions[0]
    mean = known_mean(row.value for row in rows)
    return with_epochs(replace(rows[0], seed=None, conclusion=conclusion, value=mean, said=_said(mean)), rows)


def _gain(method: Method) -> list[Decision]:
    """Accuracy over the method's own frozen baseline, by seed and on the mean, without an interval."""
    own, frozen = accuracies(method.runs), accuracies(method.frozen_own)
    gains = {seed: own[seed] - frozen[seed] if seed in own and seed in frozen else None for seed in method.runs}

    def judge(gain: float | None) -> Judged:
        return _conclude(None if gain is None else gain < PUBLISHED_GAIN), gain

    seeds = [_row(method, seed, GAIN, "published", judge(gain)) for seed, gain in gains.items()]
    mean = None if None in gains.values() else known_mean(gains.values())
    return [*seeds, with_epochs(_row(method, None, GAIN, "published", judge(mean)), seeds)]


def _stability(method: Method) -> list[Decision]:
    """The published cross-batch stability as measured; it depends on the batch size, so it decides nothing here."""
    drifts = {seed: _drift(record) for seed, record in method.runs.items()}
    seeds = [_row(method, seed, STABILITY, "published", ("no verdict", drift)) for seed, drift in drifts.items()]
    mean = known_mean(drifts.values())
    return [*seeds, with_epochs(_row(method, None, STABILITY, "published", ("no verdict", mean)), seeds)]


def _drift(record: Record) -> float | None:
    """Mean over the block taps at the end."""
    values = record.last.taps.drift
    return known_mean(values[tap] for tap in record.facts.gamma_taps) if values else None


def _row(method: Method, seed: int | None, name: str, kind: Kind, judged: Judged) -> Decision:
    conclusion, value = judged
    return Decision(
        setting=method.setting,
        method=method.label,
        seed=seed,
        criterion=name,
        kind=kind,
        conclusion=conclusion,
        said=_said(value),
        value=value,
        seeds_hit=int(conclusion == "walks back"),
    )


def _said(value: float | None) -> str:
    return "not measured" if value is None else amount(value)
