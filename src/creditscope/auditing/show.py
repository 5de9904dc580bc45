"""An audit as tables and sentences for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.show_depth import depth_table
from creditscope.auditing.show_taps import tap_tables
from creditscope.auditing.stats import write_interval
from creditscope.auditing.tables import (
    STYLES,
    WIDE,
    fit_tables,
    make_console,
    note,
    plain_table,
    render_plain,
)
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.thresholds import table as threshold_table
from creditscope.auditing.verdict import MEANINGS
from creditscope.memory import collection_paused
from creditscope.words import DASH, count, number

__all__ = ["make_console", "print_audit", "render_audit"]


def print_audit(audit: Audit, console: Console | None = None) -> None:
    """Print the whole audit."""
    console = console or make_console()
    with collection_paused():
        console.print(_draw(audit, console.width))


def render_audit(audit: Audit) -> str:
    """The whole audit as plain text."""
    return render_plain(lambda width: _draw(audit, width))


def _draw(audit: Audit, width: int) -> Group:
    parts: list[Any] = []
    for setting in dict.fromkeys(m.setting for m in audit.methods):
        methods = [m for m in audit.methods if m.setting == setting]
        seeds = sorted({seed for m in methods for seed in m.seeds})
        parts += [Text(f"{setting} · {count(len(seeds), 'seed')}", style="bold")]
        parts += [_summary(methods, width)]
        parts += [table for table in [depth_table(methods, width)] if table]
        parts += [tap_tables(methods, audit.limits, width), _checks(methods, audit.limits, width)]
        parts += [_explain(m) for m in methods]
    parts += [Text(f"note: {text}", style="yellow") for text in (*audit.notes, *audit.problems)]
    return Group(*parts)


def _summary(methods: Sequence[MethodAudit], width: int) -> Group:
    columns = {
        "accuracy": [write_interval(m.accuracy) for m in methods],
        "frozen, own stem": [write_interval(m.frozen_own) for m in methods],
        "frozen, BP stem": [write_interval(m.frozen_bp) for m in methods],
        "Γ": [number(m.gamma, "+.3f") for m in methods],
        "Γ inexact": [number(m.gamma_inexact, "+.3f") for m in methods],
        "growth": [number(m.growth, ".3g") for m in methods],
        "‖g_L‖": [number(m.g_top, ".1e") for m in methods],
        "verdict": [Text(str(m.verdict), style=STYLES[m.verdict.word]) for m in methods],
    }
    caption = (
        "± 95 % t interval over seeds, test set fixed · Γ mean cosine over the block taps · growth: largest "
        "RMS ratio over one block · ‖g_L‖ median per sample"
    )
    return Group(*fit_tables("rule", [m.method for m in methods], columns, width), note(caption))


def _checks(methods: Sequence[MethodAudit], used: Thresholds, width: int) -> Table:
    limits, published = _by_code(used, "limit"), _by_code(used, "published")
    table = plain_table()
    table.add_column("check")
    for name in ("limit", "published") if width >= WIDE else ():
        table.add_column(name)
    for m in methods:
        table.add_column(m.method)
    for i, finding in enumerate(methods[0].findings):
        outcomes = [_outcome(m.findings[i]) for m in methods]
        code = finding.code
        ours = [limits.get(code, ""), published.get(code) or DASH] if width >= WIDE else []
        table.add_row(f"{code} {finding.title}", *ours, *outcomes)
    table.caption = (
        f"† the published threshold, where there is one, fires · over seeds: an issue if {used.seed_share:.0%} of them "
        "have it · each check has a page, docs/checks/CODE.md"
    )
    return table


def _by_code(used: Thresholds, column: str) -> dict[str, str]:
    """Limits of each check, ours or published, in one string."""
    found: dict[str, list[str]] = {}
    for row in threshold_table(used):
        text = f"{row['name']} {row['value']:g}" if column == "limit" else row["published"].split(",")[0]
        for code in row["checks"] if text else ():
            found.setdefault(code, []).append(text)
    return {code: ", ".join(texts) for code, texts in found.items()}


def _outcome(finding: Finding) -> Text:
    style = {Outcome.ISSUE: "red", Outcome.PASSED: "green"}.get(finding.outcome, "yellow")
    return Text(f"{finding.outcome}{' †' if finding.published else ''}", style=style)


def _explain(m: MethodAudit) -> Group:
    head = Text(f"{m.method}: ")
    head.append(str(m.verdict), style=STYLES[m.verdict.word])
    meaning = MEANINGS[m.verdict.word]
    if m.verdict.untested and m.verdict.word == "trustworthy":
        meaning = "what was measured holds; nothing is said of what training made of the layers"
    head.append(f": {meaning}")
    lines = [f"{line.question} {line.answer}. {line.reason}" for line in m.verdict.lines]
    if m.rows_interact:
        lines.append(
            "Rows interact (message passing, or BatchNorm in train mode): a row's gradient is not its own alone"
        )
    if m.verdict.diverged:
        lines.append(f"Diverged: {m.verdict.diverged}")
    lines += [f"Tip {f.code}: {f.message}" for f in m.findings if f.outcome == Outcome.TIP]
    fired = [_first_fired(f) for f in m.findings if f.fired]
    if fired:
        lines.append(f"First an issue in training: {', '.join(fired)}")
    if len(m.seed_verdicts) > 1:
        each = ", ".join(f"{seed} {verdict}" for seed, verdict in m.seed_verdicts.items())
        lines.append(f"Each seed alone (without CS004): {each}")
    pages = [f.page for f in m.findings if f.page and (f.is_issue or f.is_open or f.outcome == Outcome.TIP)]
    if pages:
        lines.append(f"What to do: {', '.join(pages)}")
    return Group(head, *(Padding(Text(line), (0, 0, 0, 2)) for line in lines), Text())


def _first_fired(finding: Finding) -> str:
    over = "" if finding.outcome in (Outcome.ISSUE, Outcome.UNDECIDED) else ", no longer at the end"
    return f"{finding.code} at {finding.fired}{over}"
