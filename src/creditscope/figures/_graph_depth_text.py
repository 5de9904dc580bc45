"""Figure `graph_depth` as text: accuracy and Γ of every method by depth, the differences, and the sentences."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from creditscope.auditing._tables import fit_tables, render_plain
from creditscope.auditing.stats import t_interval
from creditscope.figures._graph_depth_captions import captions, footer, signed
from creditscope.figures._graph_grid import Grid, changes, list_depths, paired
from creditscope.studies.graph_depth import BP_VARIANTS, METHODS, RULES, Method


def write_grid(grid: Grid) -> str:
    """The tables and sentences of every graph."""
    return render_plain(lambda width: _draw(grid, width))


def _draw(grid: Grid, width: int) -> Group:
    parts: list[Table | Text] = []
    for task in grid.tasks:
        parts.append(Text(f"{task}: test accuracy, mean ± half of the 95 % t interval over seeds"))
        parts += _by_depth(grid, task, "accuracy", METHODS, width)
        parts.append(Text(f"{task}: mean alignment Γ, likewise"))
        parts += _by_depth(grid, task, "gamma", RULES, width)
        parts.append(Text(f"{task}: rule − BP in pp, accuracy over {list_depths(grid.deep)}, paired over seeds"))
        parts += _differences(grid, task, width)
        parts += [Text(text) for text in captions(grid, task)]
    return Group(*parts, Text(footer(grid)), *map(Text, grid.notes))


def _by_depth(grid: Grid, task: str, name: str, methods: Sequence[Method], width: int) -> list[Table]:
    """Methods down, depths across."""

    def cell(depth: int, method: Method) -> str:
        values = list(grid.cell(task, depth, method).values(name).values())
        return t_interval(values).text() if values else "–"

    columns = {f"L = {depth}": [cell(depth, method) for method in methods] for depth in grid.depths}
    return fit_tables("", [grid.name(method) for method in methods], columns, width)


def _differences(grid: Grid, task: str, width: int) -> list[Table]:
    """Rules down, variants of BP across."""

    def cell(rule: Method, method: Method) -> str:
        found = paired(grid.over_deep(task, rule), grid.over_deep(task, method))
        return "–" if found is None else signed(found)

    columns = {", ".join(changes(m)) or "recipe": [cell(rule, m) for rule in RULES] for m in BP_VARIANTS}
    return fit_tables("", [grid.name(rule) for rule in RULES], columns, width)
