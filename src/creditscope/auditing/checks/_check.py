"""What a check is: a code, a title, the line of the verdict it speaks to, and a judgement."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.methods import Method
from creditscope.auditing.moment import Moment
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts

Line = Literal["reference", "credit", "depth"]


class Check(ABC):
    """Common to all checks."""

    code: ClassVar[str]
    title: ClassVar[str]
    line: ClassVar[Line]
    """Which question of the verdict it belongs to."""
    value_is: ClassVar[str] = ""
    """What the value of its findings is; empty where they have none."""
    value_limit: ClassVar[str] = ""
    """The threshold that the value is compared with, where it is compared with one as it is."""
    why: ClassVar[str] = ""
    """Why it matters, in a sentence; its page tells more."""
    remedy: ClassVar[str] = ""
    """What to do about it, as its page says."""
    sufficient: ClassVar[bool] = True
    """Whether its pass alone answers that question with yes."""
    advisory: ClassVar[bool] = False
    """Whether it gives a tip at most; then a missing input leaves no verdict open."""

    @property
    def page(self) -> str:
        """Its page of the manual."""
        return f"docs/checks/{self.code}.md"

    def compared_with(self, facts: Facts, limits: Thresholds) -> str:
        """What the value is compared with, in words."""
        return f"{self.value_limit} {getattr(limits, self.value_limit):g}" if self.value_limit else ""

    def finding(self, outcome: Outcome, message: str, **others) -> Finding:
        """A finding of this check."""
        known = {"code": self.code, "title": self.title, "page": self.page, "advisory": self.advisory}
        return Finding(outcome=outcome, message=message, **known, **others)

    def issue(self, message: str, **others) -> Finding:
        """It is wrong."""
        return self.finding(Outcome.ISSUE, message, **others)

    def tip(self, message: str, **others) -> Finding:
        """Worth knowing; changes no verdict."""
        return self.finding(Outcome.TIP, message, **others)

    def passed(self, message: str, **others) -> Finding:
        """It is right."""
        return self.finding(Outcome.PASSED, message, **others)

    def undecided(self, message: str, **others) -> Finding:
        """The data allow both answers."""
        return self.finding(Outcome.UNDECIDED, message, **others)

    def not_applicable(self, reason: str) -> Finding:
        """The question has no meaning here."""
        return self.finding(Outcome.NOT_APPLICABLE, reason)

    def skipped(self, reason: str) -> Finding:
        """An input is missing."""
        return self.finding(Outcome.SKIPPED, reason)


class RunCheck(Check):
    """Judges one moment of one run."""

    @abstractmethod
    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """The finding for this moment."""


class MethodCheck(Check):
    """Judges a method over its seeds and against its baselines."""

    @abstractmethod
    def judge(self, method: Method, limits: Thresholds) -> Finding:
        """The finding for the method at its end."""
