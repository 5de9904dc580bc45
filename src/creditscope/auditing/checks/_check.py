"""What a check is: a code, a title, the line of the verdict it speaks to, and a judgement."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.methods import Method
from creditscope.auditing.moment import Moment
from creditscope.auditing.pooling import pool_events
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts

Line = Literal["reference", "credit", "depth"]


class Check(ABC):
    """Common to all checks: what they say of themselves, and the findings they can make.

    >>> from creditscope.auditing.checks import all_checks
    >>> all_checks()[0].code, all_checks()[0].page
    ('CS001', 'docs/checks/CS001.md')
    """

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
    """Judges one moment of one run; over seeds it is the share of them with an issue that decides.

        >>> import creditscope as cs
        >>> from creditscope.auditing.checks import RunCheck
        >>> from creditscope.auditing.moment import Moment
    from creditscope.auditing.pooling import pool_events
        >>> class TakesSteps(RunCheck):
        ...     code, title, line = "CS999", "it was not trained", "credit"
        ...
        ...     def judge(self, moment, limits):
        ...         epoch = moment.snapshot.epoch
        ...         return self.passed(f"epoch {epoch}") if epoch else self.issue("epoch 0", value=epoch)
        >>> record = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick").records[0]
        >>> TakesSteps().judge(Moment.of(record), cs.Thresholds()).message
        'epoch 1'
    """

    @abstractmethod
    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """The finding for this moment."""

    def pool(self, moments: Sequence[Moment], findings: Sequence[Finding], limits: Thresholds) -> Finding:
        """One finding over the seeds, from what was found of each; a check with a number pools that instead."""
        return pool_events(moments, findings, limits)


class SeedsCheck(Check):
    """Judges one moment of all seeds together, by estimates over them; a single run is the case of one seed."""

    @abstractmethod
    def judge(self, moments: Sequence[Moment], limits: Thresholds) -> Finding:
        """The finding over these runs."""


class MethodCheck(Check):
    """Judges a method over its seeds and against its baselines.

    >>> import creditscope as cs
    >>> from creditscope.auditing.checks import MethodCheck
    >>> from creditscope.auditing.methods import Method
    >>> class HasSeeds(MethodCheck):
    ...     code, title, line = "CS999", "too few seeds", "depth"
    ...
    ...     def judge(self, method, limits):
    ...         n = len(method.runs)
    ...         return self.passed(f"{n} seeds") if n >= limits.seeds else self.skipped(f"{n} seeds")
    >>> HasSeeds().judge(Method("DFA", "no runs", {}), cs.Thresholds()).is_open
    True
    """

    @abstractmethod
    def judge(self, method: Method, limits: Thresholds) -> Finding:
        """The finding for the method at its end."""
