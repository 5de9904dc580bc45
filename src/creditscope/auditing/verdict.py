"""Three questions, then the word: not judged, walk back, not measured, undecided, or trustworthy, in this order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from creditscope.auditing.checks import Check, Finding, Outcome, all_checks
from creditscope.text import count

if TYPE_CHECKING:
    from creditscope.auditing.audit import MethodAudit

Word = Literal[
    "trustworthy", "walk back", "undecided", "not measured", "not judged", "healthy", "ill", "not trained yet"
]
GOOD: tuple[Word, ...] = ("trustworthy", "healthy")
NETWORK_WORDS: tuple[Word, ...] = ("not measured", "healthy", "ill", "not trained yet")
"""Of a model that was watched under backprop."""

QUESTIONS = {
    "reference": "Is the reference gradient resolved?",
    "credit": "Does credit carry information?",
    "depth": "Is depth used?",
}
NETWORK_QUESTIONS = {
    "task": "Do targets and loss fit the output?",
    "signal": "Do states and gradients get through?",
    "training": "Do weights move as they should?",
}
"""Of a model that was watched under backprop."""
MEANINGS: dict[Word, str] = {
    "trustworthy": "no check fired; accuracy and alignment may be reported as they are, with their intervals",
    "walk back": "a check fired; do not claim that this method assigns credit to its layers",
    "undecided": "the seeds allow both answers; the checks say whether more of them would tell",
    "not measured": "a check lacks what it needs, and says which command measures it",
    "not judged": "there is nothing to judge: random targets, or a net that is not trained yet",
    "healthy": "no check of the network fired",
    "ill": "a check of the network fired; do first what stands first",
    "not trained yet": "nothing is wrong with it at the start; take another snapshot after some training",
}
"""What a reader may do with each word."""
VerdictAnswer = Literal["yes", "no", "open", "not measured", "not applicable"]


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One question with its answer and the findings it rests on."""

    question: str
    answer: VerdictAnswer
    reason: str
    codes: tuple[str, ...] = ()
    """The checks that decided it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reader may conclude of a method."""

    word: Word
    codes: tuple[str, ...]
    """The issues behind *walk back* and *ill* (what to look at first comes first), what is open behind *undecided*,
    what is lacking behind *not measured*."""
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


def reach_network_verdict(
    findings: Sequence[Finding], *, checks: Sequence[Check], not_judged: str = "", **others: object
) -> Verdict:
    """The verdict of a model that was watched under backprop, in its own words; `others` are those of a rule's."""
    known = {check.code: check for check in checks}
    word, codes = choose_network_word(findings, not_judged=bool(not_judged))
    return Verdict(
        word,
        codes,
        tuple(
            _answer(question, [f for f in findings if known[f.code].line == line], known)
            for line, question in NETWORK_QUESTIONS.items()
        ),
        muted=tuple(f.code for f in findings if f.outcome == Outcome.MUTED),
        not_tested=tuple(f.code for f in findings if f.outcome in (Outcome.NOT_APPLICABLE, Outcome.MUTED)),
        fired={f.code: f.fired for f in findings if f.fired},
    )


def choose_network_word(
    findings: Sequence[Finding], *, not_judged: bool, diverged: bool = False
) -> tuple[Word, tuple[str, ...]]:
    """The word and the codes behind it, causes before consequences; what is wrong at the start is wrong untrained."""
    if issues := sorted((f for f in findings if f.is_issue), key=lambda f: f.rank):
        return "ill", tuple(f.code for f in issues)
    if missing := tuple(f.code for f in findings if f.is_missing):
        return "not measured", missing
    return "not trained yet" if not_judged else "healthy", ()


def choose_word(findings: Sequence[Finding], *, diverged: bool, not_judged: bool) -> tuple[Word, tuple[str, ...]]:
    """The word and the codes behind it."""
    if not_judged:
        return "not judged", ()
    if issues := tuple(f.code for f in findings if f.is_issue):
        return "walk back", issues
    if missing := tuple(f.code for f in findings if f.is_missing):
        return "not measured", missing
    unsettled = tuple(f.code for f in findings if f.is_open)
    return "undecided" if unsettled or diverged else "trustworthy", unsettled


def _answer(question: str, findings: Sequence[Finding], checks: dict[str, Check]) -> VerdictLine:
    issues, missing = [f for f in findings if f.is_issue], [f for f in findings if f.is_missing]
    unsettled = [f for f in findings if f.is_open and not f.is_missing]
    held = [f for f in findings if f.outcome in (Outcome.PASSED, Outcome.TIP)]
    answers: list[tuple[VerdictAnswer, list[Finding], bool]] = [
        ("no", issues + unsettled, bool(issues)),
        ("not measured", missing, bool(missing)),
        ("open", unsettled, bool(unsettled)),
        ("yes", held, any(checks[f.code].sufficient for f in held)),
        ("not applicable", [], True),
    ]
    answer, chosen, _ = next(found for found in answers if found[2])
    able = [f for f in findings if checks[f.code].sufficient]
    idle = able if {f.outcome for f in able} <= {Outcome.NOT_APPLICABLE} else []  # none that could answer can be asked
    said: dict[str, list[str]] = {}  # those that say the same together
    for f in (*chosen, *idle):
        opened = "open: " if answer == "no" and f in unsettled else ""
        fired = f" [first at {f.fired}]" if f.is_issue and f.fired else ""
        said.setdefault(f"{opened}{f.message}{fired}", []).append(f.code)
    reason = "; ".join(f"{', '.join(codes)} {message}" for message, codes in said.items())
    return VerdictLine(question, answer, reason, tuple(f.code for f in chosen))


NOT_SETTLED = {Outcome.SKIPPED: "? Not measured", Outcome.UNDECIDED: "? Undecided"}


def explain(found: "MethodAudit") -> str:
    """One sentence: what the first check behind the word found, and how many more there are."""
    verdict = found.verdict
    if rests_on_checks(found):
        first, *others = sorted((f for f in found.findings if f.code in verdict.codes), key=lambda f: f.rank)
        headline = f"{first.title[0].upper()}{first.title[1:]}{NOT_SETTLED.get(first.outcome, '')}"
        more = f" ({count(len(others), 'further check')} behind it)" if others else ""
        return f"{headline}: {first.message.rstrip('.')}{more}."
    if verdict.diverged:
        rest = "; the method cannot be judged" if verdict.word != "walk back" else ""
        return f"Diverged: {verdict.diverged}{rest}."
    if verdict.not_judged:
        return f"{verdict.not_judged[0].upper()}{verdict.not_judged[1:]}: there is nothing to judge."
    nothing = f"; nothing to ask of {', '.join(verdict.not_tested)}" if verdict.not_tested else ""
    return f"No check fired{nothing}."


def rests_on_checks(found: "MethodAudit") -> bool:
    """Whether a check is needed to explain it: not if all is well, or if divergence left nothing to judge."""
    verdict, only_run = found.verdict, len(found.seeds) == 1
    return bool(verdict.codes) and not (verdict.diverged and (verdict.word != "walk back" or only_run))
