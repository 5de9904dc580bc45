"""Why a method has its verdict, in a sentence: one source for the terminal and the report."""

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.verdict import Verdict
from creditscope.text import count

NOT_SETTLED = {Outcome.SKIPPED: "? Not measured", Outcome.UNDECIDED: "? Undecided"}


def explain(found: MethodAudit) -> str:
    """One sentence: what the first check behind the word found, and how many more there are."""
    behind = _behind(found)
    if not rests_on_checks(found):
        return _without_checks(found.verdict)
    return f"{_headline(behind[0])}: {behind[0].message.rstrip('.')}{_more(behind)}."


def explain_briefly(found: MethodAudit) -> str:
    """The same without the numbers and the other checks."""
    return f"{_headline(_behind(found)[0])}." if rests_on_checks(found) else _without_checks(found.verdict)


def rests_on_checks(found: MethodAudit) -> bool:
    """Whether a check is needed to explain it: not if all is well, or if divergence left nothing to judge."""
    verdict, only_run = found.verdict, len(found.seeds) == 1
    return bool(verdict.codes) and not (verdict.diverged and (verdict.word != "walk back" or only_run))


def _behind(found: MethodAudit) -> list[Finding]:
    return [f for f in found.findings if f.code in found.verdict.codes]


def _without_checks(verdict: Verdict) -> str:
    if verdict.diverged:
        rest = "; the method cannot be judged" if verdict.word != "walk back" else ""
        return f"Diverged: {verdict.diverged}{rest}."
    if verdict.not_judged:
        return f"{verdict.not_judged[0].upper()}{verdict.not_judged[1:]}: there is nothing to judge."
    nothing = f"; nothing to ask of {', '.join(verdict.not_tested)}" if verdict.not_tested else ""
    return f"No check fired{nothing}."


def _headline(finding: Finding) -> str:
    return f"{finding.title[0].upper()}{finding.title[1:]}{NOT_SETTLED.get(finding.outcome, '')}"


def _more(behind: list[Finding]) -> str:
    return f" ({count(len(behind) - 1, 'further check')} behind it)" if len(behind) > 1 else ""
