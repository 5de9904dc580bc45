"""Figure `graph_depth` as text: accuracy and Γ of every method by depth, the differences, and the sentences."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from creditscope.auditing.stats import Interval
from creditscope.auditing.tables import fit_tables, render_plain
from creditscope.paper.figures._graph_depth_captions import captions, difference_words, footer, say_chosen, title
from creditscope.paper.figures._graph_grid import Grid, changes, graph_name
from creditscope.paper.figures._graph_learning import find_subject
from creditscope.paper.figures._words import half_width, spread_cell
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, RULES, Method
from creditscope.text import DASH


def write_grid(grid: Grid) -> str:
    """The tables and sentences of every graph."""
    return render_plain(lambda width: _draw(grid, width))


def _draw(grid: Grid, width: int) -> Group:
    parts: list[Table | Text] = []
    for task in grid.tasks:
        name = graph_name(task)
        parts.append(Text(f"{name}: test accuracy, mean ± half of the 95 % t interval over seeds"))
        parts += _by_depth(grid, task, "accuracy", METHODS, width)
        parts.append(Text(f"{name}: mean alignment Γ, likewise"))
        parts += _by_depth(grid, task, "gamma", RULES, width)
        parts.append(Text(f"{name}: {title(grid, task)}; paired over seeds"))
        parts += _differences(grid, task, width)
        parts.append(Text(f"{name}: rule − best BP, pp, by depth, likewise"))
        parts += _over_best(grid, task, width)
        parts += [Text(" ".join(captions(grid, task))), Text()]
    return Group(*parts, Text(f"{footer(grid)} {say_chosen(grid)}"), *map(Text, grid.notes))


def _by_depth(grid: Grid, task: str, name: str, methods: Sequence[Method], width: int) -> list[Table]:
    """Methods down, depths across; runs that diverged or are missing are counted."""

    def cell(depth: int, method: Method) -> str:
        found = grid.cell(task, depth, method).interval(name)
        said = [] if found is None else [_level(found)]
        for count, how in zip(grid.lost(task, depth, [method]), ("diverged", "not on record"), strict=True):
            said += [f"{count} of {len(grid.seeds)} {how}"] * (count > 0)
        return ", ".join(said) or DASH

    columns = {f"L = {depth}": [cell(depth, method) for method in methods] for depth in grid.depths}
    return fit_tables("", [grid.name(method) for method in methods], columns, width)


def _level(found: Interval) -> str:
    """A mean of one seed says so."""
    return found.text() if found.high is None else spread_cell(found.mean, half_width(found), digits=3)


def _differences(grid: Grid, task: str, width: int) -> list[Table]:
    """Rules down, variants of BP across."""
    depth = find_subject(grid, task).depth
    columns = {
        ", ".join(changes(m)) or "recipe": [_signed(grid.difference(task, depth, rule, m)) for rule in RULES]
        for m in BP_VARIANTS
    }
    return fit_tables("", [grid.name(rule) for rule in RULES], columns, width)


def _over_best(grid: Grid, task: str, width: int) -> list[Table]:
    """Rules down, depths across; the first row says which BP is the best there."""
    columns = {}
    for depth in grid.depths:
        best = grid.best(task, depth)
        cells = [_signed(grid.difference(task, depth, rule, best)) if best else DASH for rule in RULES]
        columns[f"L = {depth}"] = [", ".join(changes(best)) or "recipe" if best else DASH, *cells]
    return fit_tables("", ["best BP", *map(grid.name, RULES)], columns, width)


def _signed(difference: Interval | None) -> str:
    return DASH if difference is None else difference_words(difference)
