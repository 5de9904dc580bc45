"""Fourth section: every check's answer about every method, and what each asks."""

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.checks import Finding, Outcome, all_checks
from creditscope.auditing.columns import FINDINGS
from creditscope.auditing.thresholds import Thresholds, table
from creditscope.auditing.verdict import QUESTIONS
from creditscope.report.model import CheckFacts, CheckRow

COLUMNS = tuple(FINDINGS[name] for name in ("outcome", "message", "value", "limit", "fired"))
"""Beside the code."""


def check_rows(found: MethodAudit) -> tuple[CheckRow, ...]:
    """One method; checks that have no meaning here for one reason stand together."""
    rows: dict[tuple[str, str, bool], list[Finding]] = {}
    for finding in found.findings:
        alone = finding.outcome != Outcome.NOT_APPLICABLE
        rows.setdefault((finding.code if alone else "", finding.message, alone), []).append(finding)
    return tuple(
        CheckRow(
            codes=tuple(f.code for f in findings),
            outcome=str(findings[0].outcome),
            cells=tuple(column.cell(findings[0]) for column in COLUMNS),
            linked=findings[0].code in found.verdict.codes,
        )
        for findings in rows.values()
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


def skipped_checks(audit: Audit | None) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Checks that lacked an input: code, reason, and the methods, those of one reason together."""
    found: dict[tuple[str, str], list[str]] = {}
    for method in audit.methods if audit else ():
        for finding in method.findings:
            if finding.outcome == Outcome.SKIPPED:
                found.setdefault((finding.code, finding.message), []).append(f"{method.method} ({method.setting})")
    return tuple((code, reason, tuple(methods)) for (code, reason), methods in sorted(found.items()))
