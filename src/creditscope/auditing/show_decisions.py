"""The decision table for people: one row per method and seed, one mark per criterion."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from creditscope.auditing._tables import Cell, fit_tables, make_console, note, render_plain
from creditscope.auditing.decision import PROTOCOL, Decision, Decisions

MARKS = {"accepts": "✓", "walks back": "✗", "open": "?", "not applicable": "–", "muted": "muted"}
LEGEND = (
    "✓ accepts · ✗ walks back · ? open (an input is missing, or the data allow both) · – not applicable · a number is "
    "the epoch of first firing (over seeds: earliest–latest), in brackets where it does not walk back at the end. "
    "Usual: accuracy above chance; the same and Γ > 0. Published diagnostics stand at their published thresholds, the "
    "gain on the mean over the method's own frozen runs; their cross-batch stability is exported as drift and not "
    "judged. A seed alone is judged without CS004."
)


def print_decisions(decisions: Decisions, console: Console | None = None) -> None:
    """Print the table."""
    console = console or make_console()
    console.print(_draw(decisions, console.width))


def render_decisions(decisions: Decisions) -> str:
    """The table as plain text."""
    return render_plain(lambda width: _draw(decisions, width))


def _draw(decisions: Decisions, width: int) -> Group:
    parts: list[RenderableType] = []
    for setting in dict.fromkeys(row.setting for row in decisions):
        rows = [row for row in decisions if row.setting == setting]
        parts.append(Text(setting, style="bold"))
        parts += _tables(rows, width)
    return Group(*parts, note(LEGEND), *(Text(f"note: {text}", style="yellow") for text in decisions.notes))


def _tables(rows: Sequence[Decision], width: int):
    methods = dict.fromkeys(row.method for row in rows)
    keys = [(m, seed) for m in methods for seed in dict.fromkeys(row.seed for row in rows if row.method == m)]
    found = {(row.method, row.seed, row.criterion): row for row in rows}
    columns: dict[str, Sequence[Cell]] = {}
    for criterion in dict.fromkeys(row.criterion for row in rows):
        cells = [found.get((method, seed, criterion)) for method, seed in keys]
        columns["verdict" if criterion == PROTOCOL else criterion] = [_cell(row) for row in cells]
    labels = [f"{method}, {'all seeds' if seed is None else f'seed {seed}'}" for method, seed in keys]
    return fit_tables("method", labels, columns, width)


def _cell(row: Decision | None) -> Cell:
    if row is None:
        return ""
    style = {"accepts": "green", "walks back": "red", "open": "yellow"}.get(row.conclusion, "dim")
    if row.criterion == PROTOCOL:
        return Text(row.said, style=style)
    if row.conclusion == "no verdict":
        return Text("–" if row.value is None else f"{row.value:.2f}", style=style)
    epoch = _epoch(row)
    when = f" {epoch}" if row.conclusion == "walks back" else f" ({epoch})"
    return Text(MARKS[row.conclusion] + (when if epoch else ""), style=style)


def _epoch(row: Decision) -> str:
    if row.first_epoch is None:
        return ""
    several = row.last_first_epoch not in (None, row.first_epoch)
    return f"{row.first_epoch}–{row.last_first_epoch}" if several else f"{row.first_epoch}"
