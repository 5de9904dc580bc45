"""Trained depth: how many blocks a net depends on having trained, as an interval over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.auditing.stats import t_bounds
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Record, Snapshot
from creditscope.text import count, span


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
        blocks.append(Rewound(tap, sum(values) / len(values), low, high))
    return TrainedDepth(
        low=sum(block.low >= limits.rewind_loss for block in blocks),
        high=sum(block.high >= limits.rewind_loss for block in blocks),
        blocks=tuple(blocks),
        idle=tuple(block.tap for block in blocks if block.high < limits.rewind_loss),
    )
