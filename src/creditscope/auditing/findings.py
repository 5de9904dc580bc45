"""What a check can answer. A check that could not run never looks like one that passed."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Honest outcomes, not two."""

    ISSUE = "issue"
    TIP = "tip"
    PASSED = "passed"
    UNDECIDED = "undecided"
    NOT_APPLICABLE = "not applicable"
    SKIPPED = "skipped"
    MUTED = "muted"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check's answer about one run or one method."""

    code: str
    title: str
    outcome: Outcome
    message: str
    value: float | None = None
    """The number that decided, in the check's own unit."""
    published: bool | None = None
    """Whether the published threshold would have fired; None where none is published."""
    first_epoch: int | None = None
    """The first epoch of training at which it was an issue."""
    seeds_hit: int = 0
    seeds: int = 1
