"""An audit as tables and sentences for people."""

import io
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.stats import Interval
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.thresholds import table as threshold_table
from creditscope.auditing.verdict import Verdict

PLAIN_WIDTH = 150
WIDE = 120
"""Columns that the full tables need."""
STYLES = {"trustworthy": "bold green", "walk back": "bold red", "inconclusive": "bold yellow"}
MEANINGS = {
    "trustworthy": "accuracy and alignment may be reported as they are",
    "walk back": "do not claim that this method assigns credit to its layers; the codes say why",
    "inconclusive": "a check could not run or could not decide; the codes say which",
}


def make_console(**options: Any) -> Console:
    """A console that is wide enough for the tables when it is not a terminal."""
    console = Console(highlight=False, soft_wrap=False, **options)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH, **options)


def print_audit(audit: Audit, console: Console | None = None) -> None:
    """Print the whole audit."""
    console = console or make_console()
    console.print(_render(audit, console.width))


def render_audit(audit: Audit) -> str:
    """The whole audit as plain text."""
    text = io.StringIO()
    Console(width=PLAIN_WIDTH, highlight=False, no_color=True, file=text).print(_render(audit, PLAIN_WIDTH))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")


def _render(audit: Audit, width: int) -> Group:
    parts: list[Any] = []
    for setting in dict.fromkeys(m.setting for m in audit.methods):
        methods = [m for m in audit.methods if m.setting == setting]
        seeds = sorted({seed for m in methods for seed in m.seeds})
        parts += [Text(f"{setting} · {len(seeds)} seed{'s' * (len(seeds) != 1)}", style="bold")]
        parts += [_summary(methods, width), _taps(methods, width), _checks(methods, audit.limits, width)]
        parts += [_explain(m) for m in methods]
    parts += [Text(f"note: {problem}", style="yellow") for problem in audit.problems]
    return Group(*parts)


def _summary(methods: list[MethodAudit], width: int) -> Group:
    """One table, or two where one would not fit."""
    columns = {
        "accuracy": [_interval(m.accuracy) for m in methods],
        "frozen, own stem": [_interval(m.frozen_own) for m in methods],
        "frozen, BP stem": [_interval(m.frozen_bp) for m in methods],
        "Γ": [_number(m.gamma, "+.3f") for m in methods],
        "Γ inexact": [_number(m.gamma_inexact, "+.3f") for m in methods],
        "growth": [_number(m.growth, ".3g") for m in methods],
        "‖g_L‖": [_number(m.g_top, ".1e") for m in methods],
        "verdict": [Text(str(m.verdict), style=STYLES[m.verdict.word]) for m in methods],
    }
    names = list(columns)
    parts = [names] if width >= WIDE else [names[:3], names[3:]]
    tables = []
    for part in parts:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")
        table.add_column("rule", no_wrap=True)
        for name in part:
            justify = "left" if name == "verdict" else "right"
            table.add_column(name, justify=justify, no_wrap=name != "verdict")
        for i, m in enumerate(methods):
            table.add_row(m.method, *(columns[name][i] for name in part))
        tables.append(table)
    caption = (
        "± 95 % t interval over seeds, test set fixed · Γ mean cosine over the block taps · growth: largest "
        "RMS ratio over one block · ‖g_L‖ median per sample"
    )
    return Group(*tables, Text(caption, style="dim italic"))


def _taps(methods: list[MethodAudit], width: int) -> Group:
    """Per-tap cosines, in as many tables as the width asks for."""
    most = max(methods, key=lambda m: len(m.taps))
    tables, a_row = [], max(1, (width - 20) // 19)
    for start in range(0, len(most.taps), a_row):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")
        table.add_column("cos(a_l, g_l)", no_wrap=True)
        shown = range(start, min(start + a_row, len(most.taps)))
        for i in shown:
            table.add_column(f"tap {i} {most.taps[i]}", justify="right", no_wrap=True)
        for m in methods:
            table.add_row(m.method, *(_tap(m, i) for i in shown if i < len(m.taps)))
        tables.append(table)
    caption = (
        "mean over seeds; (z) in sd of a random orientation: above 2.33 differs from chance at 1 % for one tap, CS005 "
        "corrects for their number · = exact credit"
    )
    return Group(*tables, Text(caption, style="dim italic"))


def _tap(m: MethodAudit, i: int) -> str:
    cos = m.cos[i]
    if cos is None:
        return "–"
    return "= 1" if i in m.exact_taps and cos > 0.999 else f"{cos:+.2f} ({_number(m.z[i], '.1f')})"


def _checks(methods: list[MethodAudit], used: Thresholds, width: int) -> Table:
    limits, published = _by_code(used, "limit"), _by_code(used, "published")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    table.add_column("check")
    for name in ("limit", "published") if width >= WIDE else ():
        table.add_column(name)
    for m in methods:
        table.add_column(m.method)
    for i, finding in enumerate(methods[0].findings):
        outcomes = [_outcome(m.findings[i]) for m in methods]
        code = finding.code
        ours = [limits.get(code, ""), published.get(code) or "–"] if width >= WIDE else []
        table.add_row(f"{code} {finding.title}", *ours, *outcomes)
    table.caption = "† the published threshold, where there is one, fires"
    return table


def _by_code(used: Thresholds, column: str) -> dict[str, str]:
    """Limits of each check, ours or published, in one string."""
    found: dict[str, list[str]] = {}
    for row in threshold_table(used):
        text = f"{row['name']} {row['value']:g}" if column == "limit" else row["published"].split(",")[0]
        if text:
            found.setdefault(row["check"], []).append(text)
    return {code: ", ".join(texts) for code, texts in found.items()}


def _outcome(finding: Finding) -> Text:
    style = {Outcome.ISSUE: "red", Outcome.PASSED: "green"}.get(finding.outcome, "yellow")
    return Text(f"{finding.outcome}{' †' if finding.published else ''}", style=style)


def _explain(m: MethodAudit) -> Group:
    head = Text(f"{m.method}: ")
    head.append(str(m.verdict), style=STYLES[m.verdict.word])
    meaning = MEANINGS[m.verdict.word]
    if m.verdict.untested and m.verdict.word == "trustworthy":
        meaning = "what was measured holds; nothing is said of how the model was trained"
    head.append(f": {meaning}")
    lines = [f"{line.question} {line.answer}. {line.reason}" for line in m.verdict.lines]
    if m.rows_interact:
        lines.append(
            "Rows interact (message passing, or BatchNorm in train mode): a row's gradient is not its own alone"
        )
    if m.verdict.diverged:
        lines.append(f"Diverged: {m.verdict.diverged}")
    lines += [f"Tip {f.code}: {f.message}" for f in m.findings if f.outcome == Outcome.TIP]
    fired = [_first_fired(f) for f in m.findings if f.first_epoch is not None]
    if fired:
        lines.append(f"First an issue in training: {', '.join(fired)}")
    if len(m.seed_verdicts) > 1:
        each = ", ".join(f"{seed} {verdict}" for seed, verdict in m.seed_verdicts.items())
        lines.append(f"Each seed alone (without CS004): {each}")
    return Group(head, *(Padding(Text(line), (0, 0, 0, 2)) for line in lines), Text())


def _first_fired(finding: Finding) -> str:
    over = "" if finding.outcome in (Outcome.ISSUE, Outcome.UNDECIDED) else ", no longer at the end"
    return f"{finding.code} at epoch {finding.first_epoch}{over}"


def _interval(interval: Interval | None) -> str:
    return "–" if interval is None else str(interval)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def audit_frame(audit: Audit):
    """One row per method, for pandas."""
    import pandas as pd

    def row(m: MethodAudit, verdict: Verdict) -> dict[str, Any]:
        return {
            "setting": m.setting,
            "method": m.method,
            "seeds": len(m.seeds),
            "accuracy": m.accuracy.mean if m.accuracy else None,
            "accuracy_low": m.accuracy.low if m.accuracy else None,
            "accuracy_high": m.accuracy.high if m.accuracy else None,
            "frozen_own": m.frozen_own.mean if m.frozen_own else None,
            "frozen_bp": m.frozen_bp.mean if m.frozen_bp else None,
            "gamma": m.gamma,
            "gamma_inexact": m.gamma_inexact,
            "growth": m.growth,
            "g_top": m.g_top,
            **{f"cos_{i}": value for i, value in enumerate(m.cos)},
            **{f"z_{i}": value for i, value in enumerate(m.z)},
            "verdict": verdict.word,
            "codes": " ".join(verdict.codes),
        }

    return pd.DataFrame([row(m, m.verdict) for m in audit.methods])
