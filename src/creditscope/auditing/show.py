"""An audit as tables and sentences for people."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.show_depth import depth_table
from creditscope.auditing.show_taps import size_tables, tap_tables
from creditscope.auditing.show_verdicts import (
    answers,
    brief_tables,
    count_verdicts,
    meanings,
    remedies,
    title,
    verdict_table,
)
from creditscope.auditing.stats import write_interval
from creditscope.auditing.tables import WIDE, fit_tables, make_console, note, plain_table, render_plain
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.thresholds import table as threshold_table
from creditscope.record.load import collection_paused
from creditscope.text import DASH, number

__all__ = ["make_console", "print_audit", "render_audit"]

MOST_DETAILED = 3
"""Settings whose tables are printed; of more there is a line per method."""
MOST_BESIDE = 4
"""Methods that leave room for the limits beside the outcomes."""
NARROWER = (
    f"The three questions, numbers and checks are printed for at most {MOST_DETAILED} settings. Name words of a "
    'setting, a method or a verdict: creditscope audit … --only "cifar10, 30 epochs", or audit.only(…) in Python; '
    "--json and --card DIR hold everything."
)


def print_audit(audit: Audit, console: Console | None = None) -> None:
    """Print the whole audit."""
    console = console or make_console()
    with collection_paused():
        console.print(_draw(audit, console.width))


def render_audit(audit: Audit) -> str:
    """The whole audit as plain text."""
    return render_plain(lambda width: _draw(audit, width))


def _draw(audit: Audit, width: int) -> Group:
    names = list(dict.fromkeys(m.setting for m in audit.methods))
    settings = [[m for m in audit.methods if m.setting == name] for name in names]
    if len(settings) > MOST_DETAILED:
        parts = [count_verdicts(audit.methods, len(settings)), brief_tables(settings, width)]
        parts += [meanings(audit.methods), Text()]
    else:
        parts = [part for methods in settings for part in (title(methods), verdict_table(methods))]
        parts += [meanings(audit.methods)]
        several = len(settings) > 1
        parts += [part for methods in settings for part in _details(methods, audit.limits, width, several=several)]
    parts += [remedies(audit.methods)]
    parts += [Text(f"note: {text}", style="yellow") for text in (*audit.notes, *audit.problems)]
    parts += [Text(NARROWER)] * (len(settings) > MOST_DETAILED)
    return Group(*parts)


def _details(methods: Sequence[MethodAudit], limits: Thresholds, width: int, *, several: bool) -> list[RenderableType]:
    """The questions of each method of a setting, then the numbers behind the answers."""
    parts: list[RenderableType] = [Text(), title(methods)] * several
    parts += [part for m in methods for part in (Text(), answers(m))]
    if not any(m.accuracy or m.per_tap[0].h_norm for m in methods):
        return parts
    parts += [_numbers(methods, width)]
    parts += [table for table in [depth_table(methods, width)] if table]
    exact = all(tap.exact for m in methods for tap in m.per_tap)
    parts += [size_tables(methods, width) if exact else tap_tables(methods, limits, width)]
    return [*parts, _checks(methods, limits, width)]


def _numbers(methods: Sequence[MethodAudit], width: int) -> Group:
    columns = {
        "accuracy": [write_interval(m.accuracy) for m in methods],
        "frozen, own stem": [write_interval(m.frozen_own) for m in methods],
        "frozen, BP stem": [write_interval(m.frozen_bp) for m in methods],
        "Γ": [number(m.gamma, "+.3f") for m in methods],
        "Γ inexact": [number(m.gamma_inexact, "+.3f") for m in methods],
        "growth": [number(m.growth, ".3g") for m in methods],
        "‖g_L‖": [number(m.g_top, ".1e") for m in methods],
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
    beside = width >= WIDE and len(methods) <= MOST_BESIDE
    for name in ("limit", "published") if beside else ():
        table.add_column(name)
    for m in methods:
        table.add_column(m.method)
    for i, finding in enumerate(methods[0].findings):
        outcomes = [_outcome(m.findings[i]) for m in methods]
        code = finding.code
        ours = [limits.get(code, ""), published.get(code) or DASH] if beside else []
        table.add_row(f"{code} {finding.title}", *ours, *outcomes)
    table.caption = (
        "† the published threshold, where there is one, fires · over seeds, bounds decide · thresholds: creditscope "
        "list thresholds"
    )
    return table


def _by_code(used: Thresholds, column: str) -> dict[str, str]:
    """Limits, ours or published, in one string by the first check that goes by them."""
    found: dict[str, list[str]] = {}
    for row in threshold_table(used):
        text = f"{row['name']} {row['value']:g}" if column == "limit" else row["published"].split(",")[0]
        if text:
            found.setdefault(row["check"], []).append(text)
    return {code: ", ".join(texts) for code, texts in found.items()}


def _outcome(finding: Finding) -> Text:
    style = {Outcome.ISSUE: "red", Outcome.PASSED: "green"}.get(finding.outcome, "yellow")
    return Text(f"{finding.outcome}{' †' if finding.published else ''}", style=style)
