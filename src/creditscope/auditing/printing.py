"""What everything that is printed is made of. Tables never cut a number: they come in as many parts as it takes."""

import io
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from creditscope.auditing.columns import Column
from creditscope.text import cells, clip, visible, wrap

PLAIN_WIDTH = 150
WIDE = 120
"""Columns that the full tables need."""
LONGEST = 40
"""A text longer than this may be broken over lines."""
SHORTEST = 8
"""Letters that a line is not cut below."""
STYLES = {
    "trustworthy": "bold green",
    "walk back": "bold red",
    "undecided": "bold yellow",
    "not measured": "bold cyan",
    "not judged": "dim",
    "healthy": "bold green",
    "ill": "bold red",
    "not trained yet": "dim",
}
Cell = str | Text


def make_console() -> Console:
    """A console as wide as the terminal, or else as COLUMNS says, or as the tables need."""
    make = partial(Console, highlight=False, markup=False, emoji=False)
    console = make()
    return console if console.is_terminal else make(width=shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns)


def render_plain(draw: Callable[[int], RenderableType]) -> str:
    """What `draw` makes of a width, as plain text."""
    text = io.StringIO()
    make = partial(Console, highlight=False, no_color=True, force_terminal=False, force_jupyter=False)
    make(width=PLAIN_WIDTH, file=text).print(draw(PLAIN_WIDTH))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")


def printed(said: str, style: str = "") -> Text:
    """A line for the terminal: everything that is printed passes here, so that nothing in it is markup or is obeyed."""
    return Text(visible(said), style=style)


def _cell(said: Cell) -> Text:
    return said if isinstance(said, Text) else printed(said)


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")


def flowing_table(columns: Sequence[Column], rows: Iterable[Any]) -> Table:
    """A table in one part, whose words are broken over lines."""
    table = _table()
    for i, column in enumerate(columns):
        right = i > 0 and not column.words
        table.add_column(printed(column.heading), justify="right" if right else "left", no_wrap=not column.words)
    for row in rows:
        table.add_row(*(_cell(column.cell(row)) for column in columns))
    return table


def fit_tables(first: str, labels: Sequence[str], columns: Mapping[str, Sequence[Cell]], width: int) -> list[Table]:
    """A table of labelled rows, in as many parts as the width asks for; the first column is repeated."""
    own = max(map(len, map(_cell, (first, *labels)))) + 3  # labels are never broken
    parts, taken = [{}], own
    for name, column in columns.items():
        needed = _width(name, column)
        if parts[-1] and taken + needed > width:
            parts.append({})
            taken = own
        parts[-1][name] = column
        taken += needed
    return [_part(first, labels, part) for part in parts]


def _part(first: str, labels: Sequence[str], columns: Mapping[str, Sequence[Cell]]) -> Table:
    table = _table()
    table.add_column(printed(first), no_wrap=True)
    for name, column in columns.items():
        worded = name == "verdict" or _width(name, column) > LONGEST
        table.add_column(printed(name), justify="left" if worded else "right", no_wrap=not worded)
    for row in zip(labels, *columns.values(), strict=True):
        table.add_row(*map(_cell, row))
    return table


def _width(name: str, column: Sequence[Cell]) -> int:
    return min(max(map(len, map(_cell, (name, *column)))), LONGEST) + 3


def note(text: str) -> Text:
    """A line under a table."""
    return printed(text, style="dim italic")


def fit_line(room: int, *said: str) -> str:
    """The first that fits into a line, or the last of them cut after a clause, or after a word, or else within one.

    >>> fit_line(32, "open at tap 0; more seeds would not decide")
    'open at tap 0 …'
    """
    clauses = said[-1].split("; ")
    cut = ("; ".join(clauses[:n]) + " …" for n in range(len(clauses) - 1, 0, -1))
    words = wrap(said[-1], max(room, SHORTEST) - len(" …"))[0] + " …"
    return next((one for one in (*said, *cut, words) if cells(one) <= room), clip(words, max(room, SHORTEST)))


def warn(texts: Iterable[str]) -> list[Text]:
    """Lines about what a reader should know besides."""
    return [printed(f"note: {text}", style="yellow") for text in texts]


class Indented:
    """A text with a margin; padding of rich's would fill its lines with blanks, also for a pipe."""

    def __init__(self, text: Text, margin: int = 2):
        self.text, self.margin = text, margin

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in self.text.wrap(console, options.max_width - self.margin):
            line.rstrip()
            yield Text(" " * self.margin) + line


def indent(lines: Iterable[str]) -> list[RenderableType]:
    """Lines under a heading."""
    return [Indented(printed(line)) for line in lines]
