"""Use of depth in numbers: accuracy over the frozen baselines and along the depth ladder, paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from creditscope.auditing.methods import Method, accuracies
from creditscope.auditing.stats import Interval, t_interval


@dataclass(frozen=True)
class DepthUse:
    """What training the blocks gains, by seed; one entry per seed that has all baselines."""

    seeds: tuple[int, ...]
    baseline: str
    """The better of the two frozen baselines, by its mean."""
    gains: tuple[float, ...]
    """Accuracy over that baseline."""
    own_gains: tuple[float, ...]
    """Accuracy over the method's own frozen runs: the published quantity."""
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


def use_of_depth(method: Method) -> DepthUse | None:
    """Gains over the baselines on the seeds that have them all; None without such a seed."""
    own, frozen_own = accuracies(method.runs), accuracies(method.frozen_own)
    bp, frozen_bp = accuracies(method.bp), accuracies(method.frozen_bp)
    seeds = tuple(sorted(own.keys() & frozen_own.keys() & bp.keys() & frozen_bp.keys()))
    if not seeds:
        return None
    name, better = better_baseline(frozen_own, frozen_bp, seeds)
    return DepthUse(
        seeds=seeds,
        baseline=name,
        gains=_differences(own, better, seeds),
        own_gains=_differences(own, frozen_own, seeds),
        bp_gains=_differences(bp, frozen_bp, seeds),
    )


def better_baseline(
    frozen_own: Mapping[int, float], frozen_bp: Mapping[int, float], seeds: Sequence[int]
) -> tuple[str, Mapping[int, float]]:
    """Of the two frozen baselines the one with the higher mean accuracy over these seeds, with its name."""
    baselines = {"own-rule frozen": frozen_own, "BP-frozen": frozen_bp}
    return max(baselines.items(), key=lambda item: _mean([item[1][seed] for seed in seeds]))


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
    full, rungs = accuracies(method.runs), []
    for trained, records in method.rungs.items():
        found = accuracies(records)
        if found:
            rungs.append(Rung(trained, t_interval(list(found.values())), paired_interval(full, found)))
    return tuple(rungs)


def paired_interval(one: Mapping[int, float], other: Mapping[int, float]) -> Interval | None:
    """t interval of the difference one − other over their common seeds."""
    seeds = tuple(sorted(one.keys() & other.keys()))
    return t_interval(_differences(one, other, seeds)) if seeds else None


def _differences(one: Mapping[int, float], other: Mapping[int, float], seeds: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(one[seed] - other[seed] for seed in seeds)


def _mean(values: tuple[float, ...] | list[float]) -> float:
    return sum(values) / len(values)
