"""What a check can answer. A check that could not run never looks like one that passed."""

from dataclasses import dataclass
from enum import StrEnum

from creditscope.text import span


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
    """One check's answer about one run or one method.

    >>> from creditscope.auditing import Finding, Outcome
    >>> Finding(code="CS999", title="", outcome=Outcome.SKIPPED, message="nothing was measured").is_open
    True
    """

    code: str
    title: str
    outcome: Outcome
    message: str
    advisory: bool = False
    """Of a check that gives a tip at most: a missing input leaves nothing open."""
    page: str = ""
    """Where the manual tells how it is found, why it matters and what to do."""
    value: float | None = None
    """The number that decided, in the check's own unit."""
    limit: str = ""
    """What the value is compared with, in words; of a method's findings that have a value."""
    published: bool | None = None
    """Whether the published threshold would have fired; None where none is published."""
    first_epoch: int | None = None
    """The first epoch of training at which it was an issue."""
    last_first_epoch: int | None = None
    """Over seeds: the latest of these."""
    seeds_hit: int = 0
    seeds: int = 1

    @property
    def is_issue(self) -> bool:
        """Whether it walks the method back."""
        return self.outcome == Outcome.ISSUE

    @property
    def is_missing(self) -> bool:
        """Whether the verdict lacks it: what only gives tips is not missed."""
        return self.outcome == Outcome.SKIPPED and not self.advisory

    @property
    def is_open(self) -> bool:
        """Whether it leaves the verdict open."""
        return self.is_missing or (self.outcome == Outcome.UNDECIDED and not self.advisory)

    @property
    def fired(self) -> str:
        """When it was first an issue, in words; empty if it never was.

        >>> Finding(code="CS001", title="", outcome=Outcome.ISSUE, message="", first_epoch=3, last_first_epoch=5).fired
        'epoch 3–5'
        """
        return "" if self.first_epoch is None else f"epoch {span(self.first_epoch, self.last_first_epoch)}"
