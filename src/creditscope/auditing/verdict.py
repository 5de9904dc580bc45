"""Three questions, then the word: not judged, walk back, not measured, undecided, or trustworthy, in this order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from creditscope.auditing.checks import Check, all_checks
from creditscope.auditing.findings import Finding, Outcome

Word = Literal["trustworthy", "walk back", "undecided", "not measured", "not judged"]

QUESTIONS = {
    "reference": "Is the reference gradient resolved?",
    "credit": "Does credit carry information?",
    "depth": "Is depth used?",
}
MEANINGS: dict[Word, str] = {
    "trustworthy": "no check fired; accuracy and alignment may be reported as they are, with their intervals",
    "walk back": "a check fired; do not claim that this method assigns credit to its layers",
    "undecided": "the seeds allow both answers; more of them would tell",
    "not measured": "a check lacks what it needs, and says which command measures it",
    "not judged": "there is nothing to judge: random targets, or a net that is not trained yet",
}
"""What a reader may do with each word."""
Answer = Literal["yes", "no", "open", "not measured", "not applicable"]


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
    """The issues behind *walk back*, what is open behind *undecided*, what is lacking behind *not measured*."""
    lines: tuple[VerdictLine, ...]
    muted: tuple[str, ...] = ()
    diverged: str = ""
    not_judged: str = ""
    """Why there is nothing to judge."""
    not_tested: tuple[str, ...] = ()
    """Checks that had nothing to ask here, or were muted: a verdict does not speak of them."""
    fired: dict[str, str] = field(default_factory=dict)
    """When each check was first an issue in training, for those that ever were."""

    @property
    def meaning(self) -> str:
        """What a reader may do."""
        return MEANINGS[self.word]

    def __str__(self) -> str:
        lost = self.diverged and self.word in ("undecided", "not measured")
        said = [self.not_judged] if self.not_judged else [*(["diverged"] if lost else []), *self.codes]
        codes = f" ({', '.join(said)})" if said else ""
        muted = f" [muted: {', '.join(self.muted)}]" if self.muted else ""
        return f"{self.word}{codes}{muted}"


def reach_verdict(
    findings: Sequence[Finding],
    *,
    diverged: str = "",
    all_diverged: bool = False,
    not_judged: str = "",
    checks: Sequence[Check] | None = None,
) -> Verdict:
    """The word by its order of precedence; where every run diverged, that alone is said: nothing could be looked at."""
    if all_diverged and not not_judged:
        lines = tuple(VerdictLine(question, "not measured", "every run diverged") for question in QUESTIONS.values())
        return Verdict("not measured", (), lines, diverged=diverged)
    known = {check.code: check for check in checks or all_checks()}
    word, codes = choose_word(findings, diverged=bool(diverged), not_judged=bool(not_judged))
    return Verdict(
        word,
        codes,
        tuple(
            _answer(question, [f for f in findings if known[f.code].line == line], known)
            for line, question in QUESTIONS.items()
        ),
        muted=tuple(f.code for f in findings if f.outcome == Outcome.MUTED),
        diverged=diverged,
        not_judged=not_judged,
        not_tested=tuple(f.code for f in findings if f.outcome in (Outcome.NOT_APPLICABLE, Outcome.MUTED)),
        fired={f.code: f.fired for f in findings if f.fired},
    )


def choose_word(
    findings: Sequence[Finding], *, diverged: bool, not_judged: bool = False
) -> tuple[Word, tuple[str, ...]]:
    """The word and the codes behind it."""
    issues = tuple(f.code for f in findings if f.is_issue)
    missing = tuple(f.code for f in findings if f.is_missing)
    unsettled = tuple(f.code for f in findings if f.is_open and not f.is_missing)
    if not_judged:
        return "not judged", ()
    if issues:
        return "walk back", issues
    if missing:
        return "not measured", missing
    if unsettled or diverged:
        return "undecided", unsettled
    return "trustworthy", ()


def _answer(question: str, findings: Sequence[Finding], checks: dict[str, Check]) -> VerdictLine:
    def line(answer: Answer, *chosen: Finding) -> VerdictLine:
        said = [(f.code, f"{f.message}{f' [first at {f.fired}]' if f.is_issue and f.fired else ''}") for f in chosen]
        if answer == "no":
            said = [(c, m if f.is_issue else f"open: {m}") for f, (c, m) in zip(chosen, said, strict=True)]
        able = [f for f in findings if checks[f.code].sufficient]
        if all(f.outcome == Outcome.NOT_APPLICABLE for f in able):  # none that could answer has a meaning here
            said += [(f.code, f.message) for f in able]
        return VerdictLine(question, answer, _together(said), tuple(f.code for f in chosen))

    answers: tuple[tuple[Answer, list[Finding]], ...] = (
        ("no", [f for f in findings if f.is_issue]),
        ("not measured", [f for f in findings if f.is_missing]),
        ("open", [f for f in findings if f.is_open and not f.is_missing]),
    )
    for answer, chosen in answers:
        if chosen:
            return line(answer, *chosen, *(answers[-1][1] if answer == "no" else ()))
    held = [f for f in findings if f.outcome in (Outcome.PASSED, Outcome.TIP)]
    if any(checks[f.code].sufficient for f in held):
        return line("yes", *held)
    return line("not applicable")


def _together(said: Sequence[tuple[str, str]]) -> str:
    """Codes with what they say, those that say the same together."""
    codes: dict[str, list[str]] = {}
    for code, message in said:
        codes.setdefault(message, []).append(code)
    return "; ".join(f"{', '.join(found)} {message}" for message, found in codes.items())
