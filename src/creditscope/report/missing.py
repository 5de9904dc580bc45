"""Last section: what is missing."""

from creditscope.auditing.audit import Audit
from creditscope.auditing.findings import Outcome


def skipped_checks(audit: Audit | None) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Checks that lacked an input: code, reason, and the methods, those of one reason together."""
    found: dict[tuple[str, str], list[str]] = {}
    for method in audit.methods if audit else ():
        for finding in method.findings:
            if finding.outcome == Outcome.SKIPPED:
                found.setdefault((finding.code, finding.message), []).append(f"{method.method} ({method.setting})")
    return tuple((code, reason, tuple(methods)) for (code, reason), methods in sorted(found.items()))
