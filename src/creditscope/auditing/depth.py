"""Use of depth in numbers: accuracy over frozen baselines and along the ladder, and which blocks the net depends on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from creditscope.auditing.methods import Method, accuracies
from creditscope.auditing.stats import Interval, t_bounds, t_interval
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Record, Snapshot
from creditscope.text import count, span

OWN_FROZEN = "own-rule frozen"


@dataclass(frozen=True)
class DepthUse:
    """What training the blocks gains, by seed; one entry per seed that has all baselines."""

    seeds: tuple[int, ...]
    baseline: str
    """The better of the two frozen baselines, by its mean."""
    gains: tuple[float, ...]
    """Accuracy over that baseline."""
    own_gain: float
    """Mean accuracy over the method's own frozen runs: the published quantity."""
    bp_gains: tuple[float, ...]
    """BP's accuracy over frozen BP: what depth is worth on this task."""

    @property
    def gain(self) -> float:
        """Δ, the mean gain."""
        return _mean(self.gains)

    @property
    def bp_gain(self) -> float:
        """Δ_BP."""
        return _mean(self.bp_gains)

    @property
    def share(self) -> float | None:
        """Δ/Δ_BP; None where BP gains nothing."""
        return self.gain / self.bp_gain if self.bp_gain > 0 else None

    @property
    def share_interval(self) -> Interval | None:
        """Δ/Δ_BP with the t interval of Δ − share · Δ_BP over seeds, in units of Δ_BP: both gains are of one seed.

        None where the seeds do not show that BP gains anything: a ratio over what may be 0 says nothing.
        """
        least, share = t_interval(self.bp_gains).low, self.share
        if share is None or least is None or least <= 0:
            return None
        pairs = zip(self.gains, self.bp_gains, strict=True)
        return t_interval([share + (gain - share * bp) / self.bp_gain for gain, bp in pairs])


def use_of_depth(method: Method) -> DepthUse | None:
    """Gains over the baselines on the seeds that have them all; None without such a seed."""
    own, bp = accuracies(method.runs), accuracies(method.bp)
    frozen = {OWN_FROZEN: accuracies(method.frozen_own), "BP-frozen": accuracies(method.frozen_bp)}
    seeds = tuple(sorted(own.keys() & bp.keys() & set.intersection(*map(set, frozen.values()))))
    if not seeds:
        return None
    better = max(frozen, key=lambda name: _mean([frozen[name][seed] for seed in seeds]))
    return DepthUse(
        seeds,
        better,
        gains=_differences(own, frozen[better], seeds),
        own_gain=_mean(_differences(own, frozen[OWN_FROZEN], seeds)),
        bp_gains=_differences(bp, frozen["BP-frozen"], seeds),
    )


@dataclass(frozen=True)
class Rung:
    """One rung of the depth ladder."""

    trained: int
    """How many of the last blocks were trained; 0 is the frozen baseline."""
    accuracy: Interval
    below_full: Interval | None
    """Full run minus this one, paired by seed; None without a common seed."""


def depth_ladder(method: Method) -> tuple[Rung, ...]:
    """Accuracy against the number of trained blocks, for the rungs on record."""
    full, rungs = accuracies(method.runs), {trained: accuracies(runs) for trained, runs in method.rungs.items()}
    return tuple(
        Rung(trained, t_interval(list(found.values())), paired_interval(full, found))
        for trained, found in rungs.items()
        if found
    )


def paired_interval(one: Mapping[int, float], other: Mapping[int, float]) -> Interval | None:
    """t interval of the difference one − other over their common seeds."""
    gaps = _differences(one, other, sorted(one.keys() & other.keys()))
    return t_interval(gaps) if gaps else None


def _differences(one: Mapping[int, float], other: Mapping[int, float], seeds: Iterable[int]) -> tuple[float, ...]:
    return tuple(one[seed] - other[seed] for seed in seeds)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class Rewound:
    """One block: accuracy lost when it alone is put back, with one-sided bounds over seeds."""

    tap: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class TrainedDepth:
    """At least `low` blocks cost as much as counts, by their lower bounds, and at most `high`, by their upper ones."""

    low: int
    high: int
    blocks: tuple[Rewound, ...]
    idle: tuple[int, ...]
    """Taps of blocks that cost less, by the upper bound."""

    @property
    def short(self) -> str:
        """In figures."""
        return f"{span(self.low, self.high)} of {len(self.blocks)}"

    def __str__(self) -> str:
        return f"{span(self.low, self.high, ' to ')} of {count(len(self.blocks), 'block')}"

    def beside(self, bp: "TrainedDepth | None") -> str:
        """With BP's, where it is known."""
        return f"{self} (BP {span(bp.low, bp.high, ' to ')})" if bp else str(self)


def rewound_blocks(snapshot: Snapshot) -> dict[int, float]:
    """Accuracy lost by the tap that ends the block; with batch norms estimated anew, where there are any.

    Then the net that nothing is put back in has them estimated anew, too, where that was measured: what estimating
    costs or gains by itself is not the block's.
    """
    taps, accuracy = snapshot.taps, snapshot.accuracy
    series = taps.rewind_refit or taps.rewind
    if taps.rewind_refit and snapshot.accuracy_refit is not None:
        accuracy = snapshot.accuracy_refit
    if accuracy is None:
        return {}
    return {tap: accuracy - after for tap, after in enumerate(series) if after is not None}


def trained_depth(records: Sequence[Record], limits: Thresholds) -> TrainedDepth | None:
    """Over the runs that did not diverge; None where too few have every block put back."""
    losses = [rewound_blocks(r.last) for r in records if r.provenance.status != "diverged"]
    losses = [found for found in losses if found]
    if len(losses) < max(limits.seeds, 2) or len({tuple(found) for found in losses}) > 1:
        return None
    blocks = []
    for tap in losses[0]:
        values = [found[tap] for found in losses]
        low, high = t_bounds(values, confidence=limits.depth_confidence)
        blocks.append(Rewound(tap, _mean(values), low, high))
    return TrainedDepth(
        low=sum(block.low >= limits.rewind_loss for block in blocks),
        high=sum(block.high >= limits.rewind_loss for block in blocks),
        blocks=tuple(blocks),
        idle=tuple(block.tap for block in blocks if block.high < limits.rewind_loss),
    )
