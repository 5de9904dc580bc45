"""What a check is and what it finds: a code, a title, the question of the verdict it speaks to, and an outcome.

A check that could not run never looks like one that passed.
"""

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Literal

from creditscope.addresses import manual
from creditscope.auditing.methods import Method, Moment
from creditscope.auditing.stats import share_bounds, t_bounds
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts
from creditscope.text import amount, first_few, span

Question = Literal["reference", "credit", "depth", "task", "signal", "training"]
OPTION = re.compile(r"--(?:baselines|tier \w+|seeds \d+)")
"""Those of creditscope run that a message asks for."""
MOST, NAMED_SEEDS = 6, 4
"""Taps, blocks or stages that a message gives the numbers of, and seeds that it names."""


class Outcome(StrEnum):
    """Honest outcomes, not two."""

    ISSUE = "issue"
    TIP = "tip"
    PASSED = "passed"
    UNDECIDED = "undecided"
    NOT_APPLICABLE = "not applicable"
    SKIPPED = "skipped"
    MUTED = "muted"


@dataclass(frozen=True, kw_only=True, slots=True)
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
    where: str = ""
    """Where it starts: the name of a module or parameter; empty if it has no place."""
    rank: int = 0
    """Among the issues of a network, what to look at first: causes have smaller ones than consequences."""
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
    def needs(self) -> tuple[str, ...]:
        """The options of creditscope run that would give it what it lacks: ("--tier standard",)."""
        return tuple(OPTION.findall(self.message)) if self.is_missing else ()

    @property
    def fired(self) -> str:
        """When it was first an issue, in words; empty if it never was."""
        return "" if self.first_epoch is None else f"epoch {span(self.first_epoch, self.last_first_epoch)}"


class Check(ABC):
    """Common to all checks: what they say of themselves, and the findings they can make.

    >>> from creditscope.auditing.checks import all_checks
    >>> all_checks()[0].code, all_checks()[0].page
    ('CS001', 'https://.../docs/checks/CS001.md')
    """

    code: ClassVar[str]
    title: ClassVar[str]
    line: ClassVar[Question]
    """Which question of the verdict it belongs to."""
    value_is: ClassVar[str] = ""
    """What the value of its findings is; empty where they have none."""
    value_limit: ClassVar[str] = ""
    """The threshold that the value is compared with, where it is compared with one as it is."""
    when: ClassVar[str] = ""
    """When it is an issue, in a line; thresholds in braces."""
    why: ClassVar[str] = ""
    """Why it matters, in a sentence; its page tells more."""
    remedy: ClassVar[str] = ""
    """What to do about it, as its page says."""
    sufficient: ClassVar[bool] = True
    """Whether its pass alone answers that question with yes."""
    advisory: ClassVar[bool] = False
    """Whether it gives a tip at most; then a missing input leaves no verdict open."""
    kind: ClassVar[Literal["check", "usual", "published"]] = "check"
    """What is usual or published takes no part in a verdict; it has its column in the decision table."""
    decides: ClassVar[bool] = True
    """Whether it concludes anything; if not, its value alone is told."""
    network: ClassVar[bool] = False
    """Whether it judges a network that was watched, and no rule."""
    traced: ClassVar[bool] = True
    """Whether the epoch of first firing means something; accuracy is at chance before training anyway."""

    @property
    def page(self) -> str:
        """Its page of the manual; `creditscope audit --explain CODE` says the same in short, without a network."""
        return manual(f"checks/{self.code}.md")

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
    >>> from creditscope.auditing.checks import Moment, RunCheck
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

    pooled_size: ClassVar[str] = ""
    """What the value is called where its mean logarithm over seeds is compared with `value_limit`, not the share."""
    pooled_tip: ClassVar[str] = ""
    """What is then said where most seeds have a tip, if not what they say."""

    @abstractmethod
    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """The finding for this moment."""

    def pool(self, moments: Sequence[Moment], findings: Sequence[Finding], limits: Thresholds) -> Finding:
        """One finding over the seeds, from what was found of each; a check with a number pools that instead."""
        if self.pooled_size:
            return pool_sizes(self, moments, findings, limits)
        return pool_events(moments, findings, limits)


class SeedsCheck(Check):
    """Judges one moment of all seeds together, by estimates over them; a single run is the case of one seed.

    >>> import creditscope as cs
    >>> from creditscope.auditing.checks import Moment, SeedsCheck
    >>> class Learns(SeedsCheck):
    ...     code, title, line = "CS999", "it learned nothing", "credit"
    ...
    ...     def judge(self, moments, limits):
    ...         mean = sum(m.snapshot.accuracy for m in moments) / len(moments)
    ...         return self.passed("over a half") if mean > 0.5 else self.undecided(f"{mean:.1f}", value=mean)
    >>> runs = cs.run(task="digits", seeds=2, epochs=1, depth=1, width=8, tier="quick")
    >>> Learns().judge([Moment.of(record) for record in runs.records], cs.Thresholds()).is_issue
    False
    """

    @abstractmethod
    def judge(self, moments: Sequence[Moment], limits: Thresholds) -> Finding:
        """The finding over these runs."""


class MethodCheck(Check):
    """Judges a method over its seeds and against its baselines.

    >>> import creditscope as cs
    >>> from creditscope.auditing.checks import Method, MethodCheck
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


def pool_events(moments: Sequence[Moment], findings: Sequence[Finding], limits: Thresholds) -> Finding:
    """An issue if all seeds have it or the lower bound of its share is above `seed_share`; passed if none, or below.

    A seed that could not be judged leaves open what the others do not decide.
    """
    if len(findings) == 1:
        return findings[0]
    known = [f for f in findings if f.outcome != Outcome.SKIPPED]
    hit = [f for f in known if f.is_issue]
    if not known:
        return _most_common(findings)
    low, high = share_bounds(len(hit), len(known), confidence=limits.seed_confidence)
    chosen, named = _most_common([f for f in known if not f.is_issue] or known), ""
    if hit and (len(hit) == len(findings) or low > limits.seed_share):
        chosen = hit[0]
    elif len(known) < len(findings):
        chosen = _most_common([f for f in findings if f.outcome == Outcome.SKIPPED])
    elif hit and high >= limits.seed_share:
        chosen = replace(hit[0], outcome=Outcome.UNDECIDED)
    elif hit:
        named = f" (but {_seeds(moments, findings)}: {hit[0].message})"
    share = f"{len(hit)} of {len(findings)} seeds ({low:.0%} to {high:.0%} of any), e.g. "
    agree = len({(f.outcome, f.message) for f in findings}) == 1
    says = share if hit and not named else "" if agree else "most seeds: "
    return _together(replace(chosen, message=f"{says}{chosen.message}{named}"), findings, hit)


def pool_sizes(check: RunCheck, moments: Sequence[Moment], findings: Sequence[Finding], limits: Thresholds) -> Finding:
    """By the geometric mean over seeds of what was found, against a limit that it should not exceed."""
    values = [f.value for f in findings if f.value is not None and f.value > 0]
    if len(findings) == 1 or len(values) < len(findings):
        return pool_events(moments, findings, limits)
    limit = getattr(limits, check.value_limit)
    low, high = t_bounds([math.log(v) for v in values], confidence=limits.seed_confidence)
    low, high = math.exp(low), math.exp(min(high, 700))
    mean, hit = math.exp(sum(map(math.log, values)) / len(values)), [f for f in findings if f.is_issue]
    said = (
        f"{check.pooled_size} {amount(mean, 2)} over {len(values)} seeds ({amount(low, 2)} to {amount(high, 2)}, "
        f"one-sided {limits.seed_confidence:.0%}; limit {amount(limit)})"
    )
    if low > limit or len(hit) == len(findings):
        chosen = replace((hit or findings)[0], outcome=Outcome.ISSUE, message=said)
    elif high > limit:
        chosen = replace(findings[0], outcome=Outcome.UNDECIDED, message=f"{said}: more seeds needed")
    else:
        chosen = _most_common([f for f in findings if not f.is_issue] or findings)
        named = f", but {_seeds(moments, findings)}: {hit[0].message}" if hit else ""
        tip = f"; {check.pooled_tip or chosen.message}" if chosen.outcome == Outcome.TIP else ""
        calm = chosen.outcome if chosen.outcome == Outcome.TIP else Outcome.PASSED
        chosen = replace(chosen, outcome=calm, message=f"{said}{tip}{named}")
    return replace(_together(chosen, findings, hit), value=mean)


def _together(chosen: Finding, findings: Sequence[Finding], hit: Sequence[Finding]) -> Finding:
    values = [f.value for f in findings if f.value is not None]
    known = [f.published for f in findings if f.published is not None]
    return replace(
        chosen,
        value=sum(values) / len(values) if values else None,
        published=any(known) if known else None,
        seeds_hit=len(hit),
        seeds=len(findings),
    )


def _most_common(findings: Sequence[Finding]) -> Finding:
    """The first of the outcome that most have, with the message that most of those have."""
    outcome = Counter(f.outcome for f in findings).most_common(1)[0][0]
    said = Counter(f.message for f in findings if f.outcome == outcome).most_common(1)[0][0]
    return next(f for f in findings if f.outcome == outcome and f.message == said)


def _seeds(moments: Sequence[Moment], findings: Sequence[Finding]) -> str:
    """Those with an issue, by name."""
    hit = [m.spec.seed for m, f in zip(moments, findings, strict=True) if f.is_issue and m.spec is not None]
    return f"seed{'s' if len(hit) > 1 else ''} {first_few([str(seed) for seed in hit], NAMED_SEEDS)}"
