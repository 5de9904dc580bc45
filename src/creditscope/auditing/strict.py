"""Expectations: which methods that should pass do not, and why."""

from collections.abc import Sequence

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.errors import UnknownNameError


def expect_trust(audit: Audit, names: Sequence[str] = ()) -> list[str]:
    """One sentence per method (those named, in every setting, or all) that is not trustworthy."""
    known = {m.method for m in audit.methods}
    for name in names:
        if name not in known:
            raise UnknownNameError("method", name, known)
    return [_failure(m) for m in audit.methods if (not names or m.method in names) and m.verdict.word != "trustworthy"]


def _failure(m: MethodAudit) -> str:
    why = [f"{f.code} {f.outcome}, {f.message} ({f.page})" for f in m.findings if f.code in m.verdict.codes]
    why += [f"diverged: {m.verdict.diverged}"] * bool(m.verdict.diverged)
    why += [m.verdict.not_judged] * bool(m.verdict.not_judged)
    return f"Expected {m.method} ({m.setting}) to be trustworthy, but got {m.verdict.word}: {'; '.join(why)}."
