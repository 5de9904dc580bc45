"""Deep GCNs by rule: accuracy and mean alignment over depth, and each rule against every variant of BP.

Every number, also those in the captions, comes from the last snapshots of the records.
"""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from creditscope.paper.figures import _style, register_figure
from creditscope.paper.figures._graph_depth_captions import footer, summarise
from creditscope.paper.figures._graph_depth_panels import OTHERS, PANELS, RANGE, TINTS, look
from creditscope.paper.figures._graph_depth_text import write_grid
from creditscope.paper.figures._graph_grid import Grid, graph_name, select_grid
from creditscope.paper.figures._graph_learning import RECIPE, find_subject
from creditscope.paper.figures._page import LETTERS, MARGIN, add_axes, draw_footer, wrap_footer
from creditscope.paper.figures._style import BAND, BODY, FAINT, GREY, INK, PAD, WIDTH, line_height
from creditscope.paper.studies.graph_depth import METHODS, RULES, Method
from creditscope.record import Record

HEIGHTS = {"rules": 1.92, "variants": 1.52, "gamma": 0.92, "matrix": 0.84}
"""Of the rows of panels, inches."""
AXIS_ROOM, COLUMN_GAP, BELOW, BETWEEN, TITLE = 0.48, 0.16, 0.36, 0.22, 0.24
"""Room left of a panel with an axis of its own and of the others, below a panel with a named axis of depth and with a
bare one, and over the matrix; inches."""
Place = tuple[float, float, float, float]


@register_figure("graph_depth")
def plot_graph_depth(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `graph_depth`: every method at every depth on every graph."""
    grid = select_grid(records)
    with _style.styled():
        return _compose(grid)


def describe(records: Sequence[Record]) -> str:
    """The tables and sentences as text."""
    return write_grid(select_grid(records))


def _compose(grid: Grid) -> Figure:
    """Graphs from left to right, measures from top to bottom; keys, a caption for each graph and footer below."""
    width = WIDTH - 2 * MARGIN
    texts = [_style.wrap_text(summarise(grid, task), width=width - 2 * PAD, italic=True) for task in grid.tasks]
    foot, keys = wrap_footer([" ".join([footer(grid), *grid.notes])]), _keys(grid)
    boxes = [len(lines) * line_height() + 2 * PAD for lines in texts]
    bottom = len(foot) * line_height() + 0.1
    box_top = bottom + sum(boxes) + 0.05 * (len(boxes) - 1)
    key_top = box_top + 0.1 + max(map(_style.key_height, keys))
    places, top = _arrange(grid.tasks, bottom=key_top + 0.36)
    fig = Figure(figsize=(WIDTH, top + 0.26))
    several = len(grid.tasks) > 1
    for (task, kind), place in places.items():
        ax = add_axes(fig, *place, label=f"{task} {kind}")
        PANELS[kind](ax, grid, task, first=task in grid.tasks[:1])
        if _shares_depths(grid.tasks, kind):
            ax.set_xlabel("")
        if kind == "rules":
            style = {"transform": fig.dpi_scale_trans, "weight": "bold", "va": "bottom", "size": BODY}
            letter = f"{LETTERS[grid.tasks.index(task)]}   " if several else ""
            fig.text(place[0], top + 0.06, f"{letter}{graph_name(task)}", **style)
    for x, group in zip((0.1, 2.45, 4.15), keys, strict=True):
        _style.draw_key(fig.axes[0], group, x=MARGIN + x, y=key_top, loc="upper left")
    y = box_top
    for lines, height in zip(texts, boxes, strict=True):
        _style.draw_caption(fig, lines, x=MARGIN, y=y - height, width=width, height=height)
        y -= height + 0.05
    draw_footer(fig, foot, top=bottom - 0.06)
    return fig


def _arrange(tasks: Sequence[str], *, bottom: float) -> tuple[dict[tuple[str, str], Place], float]:
    """Where each panel goes (x, y, width, height), and the top of them; one graph has two panels a row."""
    left, right = MARGIN + AXIS_ROOM, WIDTH - MARGIN
    if len(tasks) == 1:
        rows = [[(tasks[0], kind) for kind in kinds] for kinds in (("rules", "variants"), ("gamma", "matrix"))]
        gap = AXIS_ROOM
    else:
        rows, gap = [[(task, kind) for task in tasks] for kind in HEIGHTS], COLUMN_GAP
    width = (right - left + gap) / len(rows[0]) - gap
    places, y = {}, bottom
    for row in reversed(rows):
        height = max(HEIGHTS[kind] for _, kind in row)
        places |= {panel: (left + i * (width + gap), y, width, height) for i, panel in enumerate(row)}
        y += height + TITLE * (row[-1][1] == "matrix")
        above = rows.index(row) - 1
        if above >= 0:
            y += BETWEEN if _shares_depths(tasks, rows[above][0][1]) else BELOW
    return places, y


def _shares_depths(tasks: Sequence[str], kind: str) -> bool:
    """Whether the axis of depth is named by the panel below."""
    return len(tasks) > 1 and kind in ("rules", "variants")


def _keys(grid: Grid) -> list[Sequence[Artist]]:
    """The rules, the variants of BP, and what the other marks are."""

    def line(method: Method) -> Line2D:
        label = "BP by the recipe" if method == RECIPE else grid.name(method)
        return Line2D([], [], label=label, **look(method, grid))

    n = len(grid.seeds)
    seen = f"mean, 95 % t interval over {n} seeds\n(other BPs: mean)" if n > 1 else "one seed, no interval"
    marks: list[Artist] = [
        Line2D([], [], color=INK, lw=0.6, marker="|", ms=6, mew=0.6, ls="", label=seen),
        Line2D([], [], color=GREY, lw=0.7, ls="--", label="majority class"),
        Line2D([], [], color=GREY, lw=0.7, ls=":", label="chance (accuracy), 0 (Γ)"),
    ]
    if any(find_subject(grid, task).failed for task in grid.tasks):
        marks.append(Line2D([], [], color=INK, lw=0.6, ls="-.", label="BP by the recipe first fails"))
    marks += [
        Patch(facecolor=TINTS["above"], edgecolor=BAND, label="rule above BP (95 % t interval leaves out 0)"),
        Patch(facecolor=TINTS["below"], edgecolor=BAND, label="rule below BP"),
    ]
    if any(sum(grid.lost(task, depth, METHODS)) for task in grid.tasks for depth in grid.depths):
        marks.append(
            Patch(facecolor="white", edgecolor=FAINT, hatch="/////", lw=0.4, label="runs diverged or not on record")
        )
    others = len(grid.with_runs(OTHERS))
    span = [Patch(facecolor=RANGE, label=f"the {others} other BPs, worst to best mean")] if others else []
    return [[line(RECIPE), *map(line, RULES), *span], list(map(line, OTHERS)), marks]
