"""What the printed tables share: a console of the right width, and tables that never cut a number."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from creditscope.auditing.columns import Column

PLAIN_WIDTH = 150
WIDE = 120
"""Columns that the full tables need."""
LONGEST = 40
"""A text longer than this may be broken over lines."""
Cell = str | Text


def make_console(**options: Any) -> Console:
    """A console that is wide enough for the tables when it is not a terminal."""
    console = Console(highlight=False, soft_wrap=False, **options)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH, **options)


def render_plain(draw: Callable[[int], RenderableType]) -> str:
    """What `draw` makes of a width, as plain text."""
    text = io.StringIO()
    Console(width=PLAIN_WIDTH, highlight=False, no_color=True, file=text).print(draw(PLAIN_WIDTH))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")


def plain_table() -> Table:
    """An empty table in the one style."""
    return Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")


def flowing_table(columns: Sequence[Column], rows: Iterable[Any], styles: Callable[[Any], str] | None = None) -> Table:
    """A table in one part, whose words are broken over lines; `styles` colours the verdict of a row."""
    table = plain_table()
    for i, column in enumerate(columns):
        right = i > 0 and not column.words
        table.add_column(column.heading, justify="right" if right else "left", no_wrap=not column.words)
    for row in rows:
        cells = {column.name: column.cell(row) for column in columns}
        styled = {"verdict": Text(cells["verdict"], style=styles(row))} if styles else {}
        table.add_row(*(cells | styled).values())
    return table


def fit_tables(first: str, labels: Sequence[str], columns: Mapping[str, Sequence[Cell]], width: int) -> list[Table]:
    """A table of labelled rows, in as many parts as the width asks for; the first column is repeated."""
    own = max(map(len, (first, *labels))) + 3  # labels are never broken
    parts: list[list[str]] = [[]]
    taken = own
    for name, cells in columns.items():
        needed = _width(name, cells)
        if parts[-1] and taken + needed > width:
            parts.append([])
            taken = own
        parts[-1].append(name)
        taken += needed
    return [_part(first, labels, {name: columns[name] for name in part}) for part in parts]


def _part(first: str, labels: Sequence[str], columns: Mapping[str, Sequence[Cell]]) -> Table:
    table = plain_table()
    table.add_column(first, no_wrap=True)
    for name, cells in columns.items():
        worded = name == "verdict" or _width(name, cells) > LONGEST
        table.add_column(name, justify="left" if worded else "right", no_wrap=not worded)
    for i, label in enumerate(labels):
        table.add_row(label, *(cells[i] for cells in columns.values()))
    return table


def _width(name: str, cells: Sequence[Cell]) -> int:
    return min(max(map(len, (name, *cells)), default=0), LONGEST) + 3


def note(text: str) -> Text:
    """A line under a table."""
    return Text(text, style="dim italic")
