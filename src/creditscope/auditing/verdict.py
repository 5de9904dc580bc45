"""Three questions, then the word: trustworthy, walk back, or inconclusive."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from creditscope.auditing.checks import Check, all_checks
from creditscope.auditing.findings import Finding, Outcome

Word = Literal["trustworthy", "walk back", "inconclusive"]

QUESTIONS = {
    "reference": "Is the reference gradient resolved?",
    "credit": "Does credit carry information?",
    "depth": "Is depth used?",
}
MEANINGS: dict[Word, str] = {
    "trustworthy": "accuracy and alignment may be reported as they are",
    "walk back": "do not claim that this method assigns credit to its layers",
    "inconclusive": "a check could not run or could not decide",
}
"""What a reader may do with each word."""
UNTESTED_MEANINGS: dict[Word, str] = {
    "trustworthy": "what was measured holds; nothing is said of what training made of the layers",
    "walk back": "something is wrong with this net or with what was measured",
    "inconclusive": MEANINGS["inconclusive"],
}
"""The same of a watched model or of random targets, which say nothing of a rule that assigns credit."""
Answer = Literal["yes", "no", "open", "not applicable"]


@dataclass(frozen=True)
class VerdictLine:
    """One question with its answer and the findings it rests on."""

    question: str
    answer: Answer
    reason: str
    codes: tuple[str, ...] = ()
    """The checks that decided it."""


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
    fired: dict[str, str] = field(default_factory=dict)
    """When each check was first an issue in training, for those that ever were."""

    @property
    def meaning(self) -> str:
        """What a reader may do."""
        return (UNTESTED_MEANINGS if self.untested else MEANINGS)[self.word]

    def __str__(self) -> str:
        lost = self.diverged and self.word == "inconclusive"
        said = [*(["diverged"] if lost else self.codes), *([self.untested] if self.untested else [])]
        codes = f" ({', '.join(said)})" if said else ""
        muted = f" [muted: {', '.join(self.muted)}]" if self.muted else ""
        return f"{self.word}{codes}{muted}"


def reach_verdict(
    findings: Sequence[Finding],
    *,
    diverged: str = "",
    all_diverged: bool = False,
    untested: str = "",
    checks: Sequence[Check] | None = None,
) -> Verdict:
    """Issues walk a method back; anything skipped or undecided, or a diverged run, leaves it inconclusive.

    Where every run diverged, that alone is said: no check could look at anything.
    """
    if all_diverged:
        lines = tuple(VerdictLine(question, "open", "every run diverged") for question in QUESTIONS.values())
        return Verdict("inconclusive", (), lines, diverged=diverged, untested=untested)
    known = {check.code: check for check in checks or all_checks()}
    word, codes = choose_word(findings, diverged=bool(diverged))
    return Verdict(
        word,
        codes,
        tuple(
            _answer(question, [f for f in findings if known[f.code].line == line], known)
            for line, question in QUESTIONS.items()
        ),
        muted=tuple(f.code for f in findings if f.outcome == Outcome.MUTED),
        diverged=diverged,
        untested=untested,
        fired={f.code: f.fired for f in findings if f.fired},
    )


def choose_word(findings: Sequence[Finding], *, diverged: bool) -> tuple[Word, tuple[str, ...]]:
    """The word and the codes behind it."""
    issues = tuple(f.code for f in findings if f.is_issue)
    unsettled = tuple(f.code for f in findings if f.is_open)
    if issues:
        return "walk back", issues
    if unsettled or diverged:
        return "inconclusive", unsettled
    return "trustworthy", ()


def _answer(question: str, findings: Sequence[Finding], checks: dict[str, Check]) -> VerdictLine:
    def line(answer: Answer, *chosen: Finding) -> VerdictLine:
        said = [(f.code, f"{f.message}{f' [first at {f.fired}]' if f.is_issue and f.fired else ''}") for f in chosen]
        # checks that could have answered but have no meaning here
        beside = [f for f in findings if checks[f.code].sufficient and f.outcome == Outcome.NOT_APPLICABLE]
        said += [(f.code, f.message) for f in beside]
        return VerdictLine(question, answer, _together(said), tuple(f.code for f in chosen))

    issues = [f for f in findings if f.is_issue]
    unsettled = [f for f in findings if f.is_open]
    held = [f for f in findings if f.outcome in (Outcome.PASSED, Outcome.TIP)]
    if issues:
        return line("no", *issues)
    if unsettled:
        return line("open", *unsettled)
    if any(checks[f.code].sufficient for f in held):
        return line("yes", *held)
    return line("not applicable")


def _together(said: Sequence[tuple[str, str]]) -> str:
    """Codes with what they say, those that say the same together."""
    codes: dict[str, list[str]] = {}
    for code, message in said:
        codes.setdefault(message, []).append(code)
    return "; ".join(f"{', '.join(found)} {message}" for message, found in codes.items())
