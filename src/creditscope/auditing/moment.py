"""A moment: one snapshot of a run, with what a check may look at beside it."""

from collections.abc import Callable
from dataclasses import dataclass

from creditscope.record import Facts, Record, RunSpec, Snapshot


@dataclass(frozen=True)
class Moment:
    """What a check of a run judges."""

    facts: Facts
    snapshot: Snapshot
    untrained: Snapshot | None = None
    """The same net before training, where it was measured."""
    spec: RunSpec | None = None
    """None for a watched model."""

    @classmethod
    def of(cls, record: Record, snapshot: Snapshot | None = None) -> "Moment":
        """A moment of this run, the last one by default."""
        chosen, first = snapshot or record.last, record.snapshots[0]
        untrained = first if record.facts.trainer and first.epoch == 0 and chosen is not first else None
        return cls(record.facts, chosen, untrained, record.spec)

    @property
    def random_targets(self) -> bool:
        """Whether the labels it was trained on are random ones."""
        return self.spec is not None and self.spec.random_targets

    def remedy(self, watched: str = "standard") -> str:
        """What to do about a measurement that the tier left out; `watched` is the tier of a scope that has it."""
        if self.spec is None:
            return f'call snapshot(…, tier="{watched}")'
        if self.spec.tier == "quick":
            return "tier quick: run with --tier standard"
        return "run it again with --tier standard"


def first_epoch(record: Record, holds: Callable[[Snapshot], bool]) -> int | None:
    """The first measured epoch of training at which something holds; the untrained net is passed over."""
    return next((s.epoch for s in record.snapshots if s.epoch > 0 and holds(s)), None)
