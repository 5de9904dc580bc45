"""An audit in plain lines, where `rich` is not installed: verdicts, answers, and what to do; no table."""

from typing import TYPE_CHECKING

from creditscope.auditing.checks import Outcome, what_to_do
from creditscope.text import count, visible

if TYPE_CHECKING:
    from creditscope.auditing.audit import Audit

TOLD = (Outcome.ISSUE, Outcome.TIP, Outcome.UNDECIDED)
WITHOUT_TABLES = "Tables are left out, because the package rich is not installed. Install it: pip install rich."


def write_audit(audit: "Audit") -> str:
    """Method by method; a line for each question and for each check that has something to say."""
    lines: list[str] = []
    for m in audit.methods:
        lines += [f"{m.setting} · {count(len(m.seeds), 'seed')}", f"{m.method}: {m.verdict}"]
        lines += [f"  {line.question} {line.answer}. {line.reason}" for line in m.verdict.lines]
        lines += [f"  {f.code} {f.outcome}: {f.message}" for f in m.findings if f.outcome in TOLD]
    todo = what_to_do(f for m in audit.methods for f in m.findings)
    lines += ["What to do", *(f"  {line}" for line in todo)] * bool(todo)
    lines += [f"note: {text}" for text in (*audit.notes, *audit.problems)]
    return "\n".join(map(visible, [*lines, WITHOUT_TABLES]))
