"""Fourth section: every check's answer about every method, and what each asks."""

from collections.abc import Sequence
from functools import cache

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.checks import all_checks
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.thresholds import Thresholds, table
from creditscope.auditing.verdict import QUESTIONS
from creditscope.report.model import CheckFacts, CheckRow
from creditscope.report.numbers import plain
from creditscope.report.symbols import OF_OUTCOME


def check_rows(found: MethodAudit, limits: Thresholds) -> tuple[CheckRow, ...]:
    """One method; checks that have no meaning here for one reason stand together."""
    rows: dict[tuple[str, str, bool], list[Finding]] = {}
    for finding in found.findings:
        alone = finding.outcome != Outcome.NOT_APPLICABLE
        rows.setdefault((finding.code if alone else "", finding.message, alone), []).append(finding)
    return tuple(_row(findings, found.verdict.codes, limits) for findings in rows.values())


@cache
def _compared_with() -> dict[str, str]:
    """The threshold that each check's value is compared with."""
    return {check.code: check.value_limit for check in all_checks() if check.value_limit}


def _limit(finding: Finding, limits: Thresholds) -> str:
    name = _compared_with().get(finding.code)
    return f"{name} {getattr(limits, name):g}" if name and finding.value is not None else ""


def _row(findings: list[Finding], linked: Sequence[str], limits: Thresholds) -> CheckRow:
    first = findings[0]
    return CheckRow(
        codes=tuple(f.code for f in findings),
        outcome=str(first.outcome),
        symbol=OF_OUTCOME[first.outcome],
        message=first.message,
        value="" if first.value is None else plain(first.value, ".3g"),
        limit=_limit(first, limits),
        fired=first.fired,
        linked=first.code in linked,
    )


def check_facts(limits: Thresholds) -> tuple[CheckFacts, ...]:
    """What each check asks, with the thresholds in use."""
    rows = table(limits)
    return tuple(
        CheckFacts(
            code=check.code,
            title=check.title,
            question=QUESTIONS[check.line],
            value_is=check.value_is,
            why=check.why,
            remedy=check.remedy,
            limits=tuple(
                (row["name"], f"{row['value']:g}", row["meaning"], row["published"])
                for row in rows
                if check.code in row["checks"]
            ),
        )
        for check in all_checks()
    )


def changed_limits(limits: Thresholds) -> tuple[str, ...]:
    """Thresholds that are not the usual ones, in words."""
    usual = Thresholds()
    return tuple(
        f"{row['name']} {row['value']:g} (usual {getattr(usual, row['name']):g})"
        for row in table(limits)
        if row["value"] != getattr(usual, row["name"])
    )
