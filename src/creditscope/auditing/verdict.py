"""Three questions, then the word: trustworthy, walk back, or inconclusive."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from creditscope.auditing.checks import all_checks
from creditscope.auditing.findings import Finding, Outcome

Word = Literal["trustworthy", "walk back", "inconclusive"]

QUESTIONS = {
    "reference": "Is the reference gradient resolved?",
    "credit": "Does credit carry information?",
    "depth": "Is depth used?",
}
Answer = Literal["yes", "no", "open", "not applicable"]
OPEN = (Outcome.SKIPPED, Outcome.UNDECIDED)


@dataclass(frozen=True)
class VerdictLine:
    """One question with its answer and the findings it rests on."""

    question: str
    answer: Answer
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What a reader may conclude of a method."""

    word: Word
    codes: tuple[str, ...]
    """The issues behind *walk back*, or what is open behind *inconclusive*."""
    lines: tuple[VerdictLine, ...]
    muted: tuple[str, ...] = ()
    diverged: str = ""
    untested: str = ""
    """What the verdict does not speak of."""

    def __str__(self) -> str:
        said = [*self.codes, *([self.untested] if self.untested else [])]
        codes = f" ({', '.join(said)})" if said else ""
        muted = f" [muted: {', '.join(self.muted)}]" if self.muted else ""
        return f"{self.word}{codes}{muted}"


def reach_verdict(findings: Sequence[Finding], *, diverged: str = "", untested: str = "") -> Verdict:
    """Issues walk a method back; anything skipped or undecided, or a diverged run, leaves it inconclusive."""
    checks = {check.code: check for check in all_checks()}
    sufficient = frozenset(code for code, check in checks.items() if check.sufficient)
    lines = tuple(
        _answer(question, [f for f in findings if checks[f.code].line == line], sufficient)
        for line, question in QUESTIONS.items()
    )
    issues = tuple(f.code for f in findings if f.outcome == Outcome.ISSUE)
    unsettled = tuple(f.code for f in findings if f.outcome in OPEN)
    muted = tuple(f.code for f in findings if f.outcome == Outcome.MUTED)
    if issues:
        return Verdict("walk back", issues, lines, muted, diverged, untested)
    if unsettled or diverged:
        return Verdict("inconclusive", unsettled, lines, muted, diverged, untested)
    return Verdict("trustworthy", (), lines, muted, diverged, untested)


def _answer(question: str, findings: Sequence[Finding], sufficient: frozenset[str]) -> VerdictLine:
    def line(answer: Answer, *chosen: Finding) -> VerdictLine:
        return VerdictLine(question, answer, "; ".join(f"{f.code} {f.message}" for f in (*chosen, *meaningless)))

    meaningless = [f for f in findings if f.code in sufficient and f.outcome == Outcome.NOT_APPLICABLE]
    issues = [f for f in findings if f.outcome == Outcome.ISSUE]
    unsettled = [f for f in findings if f.outcome in OPEN]
    held = [f for f in findings if f.outcome in (Outcome.PASSED, Outcome.TIP)]
    if issues:
        return line("no", *issues)
    if unsettled:
        return line("open", *unsettled)
    if any(f.code in sufficient for f in held):
        return line("yes", *held)
    return line("not applicable")
