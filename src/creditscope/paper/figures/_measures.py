"""Numbers of deep nets that several figures say: zero gradients, and the decay term beside the gradient."""

from collections.abc import Iterable, Sequence

from creditscope.paper.figures._selection import spec_of
from creditscope.paper.figures._stats import median
from creditscope.record import Record, Snapshot


def count_zero_norms(moments: Sequence[Snapshot]) -> tuple[int, int]:
    """Weight gradients whose plain float32 norm is 0, and all whose norm is known."""
    return _count_zero(value for s in moments if s.weights for value in s.weights.exact_float32)


def count_all_zero(moments: Sequence[Snapshot]) -> tuple[int, int]:
    """Weight gradients of which every element is 0, and all that were looked at."""
    return _count_zero(not value for s in moments if s.weights for value in s.weights.exact_all_zero)


def _count_zero(values: Iterable[float | None]) -> tuple[int, int]:
    known = [value for value in values if value is not None]
    return sum(value == 0 for value in known), len(known)


def decay_ratio(records: Sequence[Record]) -> float:
    """weight_decay · ‖W‖ / ‖∂L/∂W‖ before training, median over layers and runs.

    It is 0 where a layer does not decay, and NaN where decay is no part of the gradient.
    """
    return median(ratio for record in records for ratio in _decay_ratios(record))


def _decay_ratios(record: Record) -> list[float]:
    spec, first = spec_of(record), record.snapshots[0]
    if spec.optimiser == "adamw" or first.epoch or not first.weights or not first.weights.w_norm:
        return []
    found = []
    for layer, (size, gradient) in enumerate(zip(first.weights.w_norm, first.weights.exact_norm, strict=True)):
        decay = spec.weight_decay if spec.decay_on == "all" or layer == 0 else 0.0
        if size is not None and gradient is not None:
            found.append(0.0 if not decay else decay * size / gradient if gradient else float("inf"))
    return found
