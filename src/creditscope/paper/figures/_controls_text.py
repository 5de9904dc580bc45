"""Figure `bottleneck_controls` as text: the table of every depth, and the sentences."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from creditscope.auditing.tables import fit_tables, render_plain
from creditscope.paper.figures._controls import Block, Controls
from creditscope.paper.figures._controls_captions import COLUMNS, define_answers, explain, footer


def write_controls(found: Controls) -> str:
    """The tables and sentences of every depth."""
    return render_plain(lambda width: _draw(found, width))


def _draw(found: Controls, width: int) -> Group:
    parts: list[Table | Text] = []
    for block in found.blocks:
        parts += [Text(f"{found.spec.task}, L = {block.depth}"), *_table(block, width), Text(explain(block))]
    return Group(*parts, Text(f"{footer(found)} {define_answers(found)}"), *map(Text, found.notes))


def _table(block: Block, width: int) -> list[Table]:
    columns = {
        heading.replace("\n", " ").replace("/ ", "/"): [say(row) for row in block.rows]
        for heading, say in COLUMNS.items()
    }
    return fit_tables("control", [row.control.name for row in block.rows], columns, width)
