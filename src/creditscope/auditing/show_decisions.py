"""The decision table for people: one row per method and seed, one mark per criterion."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from creditscope.auditing.decision import PROTOCOL, Decision, Decisions
from creditscope.auditing.symbols import OF_CONCLUSION
from creditscope.auditing.tables import Cell, fit_tables, make_console, note, render_plain
from creditscope.text import number

LEGEND = (
    "✓ accepts · ✗ walks back · ? open (an input is missing, or the data allow both) · – not applicable · ◌ muted · a "
    "number is the epoch of first firing (over seeds: earliest–latest), in brackets where it does not walk back at the "
    "end. "
    "Usual: accuracy above chance; the same and Γ > 0. Published diagnostics stand at their published thresholds, the "
    "gain on the mean over the method's own frozen runs; their cross-batch stability is exported as drift and not "
    "judged. A seed alone is judged without CS004 and CS011."
)


def print_decisions(decisions: Decisions) -> None:
    """Print the table."""
    console = make_console()
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
        return Text(number(row.value, ".2f"), style=style)
    return Text(f"{OF_CONCLUSION[row.conclusion]} {row.fired}".rstrip(), style=style)
