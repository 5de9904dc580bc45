"""A page of panels in a row: panels, their keys, a caption box under each, and a footer; as high as they need.

Places are in inches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.paper.figures import _style
from creditscope.paper.figures._style import PAD, SMALL, WIDTH, line_height

MARGIN, GAP, AXIS_ROOM, PANEL = 0.05, 0.12, 0.47, 1.75
"""Page margin, gap between columns, room left of a panel for its axis, height of a panel."""
LETTERS = "ABCDEFGH"
"""Of panels or rows of them."""
COLUMN = (WIDTH - 2 * MARGIN - 2 * GAP) / 3


@dataclass(frozen=True)
class Panel:
    """One column: what is drawn, what its marks mean, and what it shows, in words."""

    letter: str
    title: str
    draw: Callable[[Axes], None]
    keys: Sequence[Artist]
    caption: str
    axis_room: float = AXIS_ROOM
    right_room: float = 0.0
    """For the labels of a second axis."""


def add_axes(fig: Figure, x: float, y: float, width: float, height: float, *, label: str) -> Axes:
    """Axes at a place in inches."""
    page = fig.get_size_inches()
    return fig.add_axes((x / page[0], y / page[1], width / page[0], height / page[1]), label=label)


def wrap_footer(texts: Sequence[str]) -> list[str]:
    """Lines as wide as the page."""
    return [line for text in texts if text for line in _style.wrap_text(text, width=WIDTH - 2 * MARGIN)]


def draw_footer(fig: Figure, lines: Sequence[str], *, top: float) -> None:
    """Small lines across the page, from `top` down."""
    where = {"transform": fig.dpi_scale_trans, "va": "top", "size": SMALL, "linespacing": 1.2}
    fig.text(MARGIN, top, "\n".join(lines), **where)


def compose_page(panels: Sequence[Panel], *, footer: Sequence[str]) -> Figure:
    """Up to three panels side by side."""
    column = (WIDTH - 2 * MARGIN - (len(panels) - 1) * GAP) / len(panels)
    captions = [_style.wrap_text(p.caption, width=column - 2 * PAD, italic=True) for p in panels]
    foot = wrap_footer(footer)
    box = max(map(len, captions)) * line_height() + 2 * PAD
    box_bottom = len(foot) * line_height() + 0.1
    key_top = box_bottom + box + 0.1 + max(_style.key_height(p.keys) for p in panels)
    bottom = key_top + 0.36
    fig = Figure(figsize=(WIDTH, bottom + PANEL + 0.34))
    for i, (panel, lines) in enumerate(zip(panels, captions, strict=True)):
        edge = MARGIN + i * (column + GAP)
        width = column - panel.axis_room - panel.right_room
        ax = add_axes(fig, edge + panel.axis_room, bottom, width, PANEL, label=panel.letter)
        panel.draw(ax)
        heading = f"{panel.letter}   {panel.title}"
        where = {"transform": fig.dpi_scale_trans, "weight": "bold", "va": "bottom"}
        fig.text(edge, bottom + PANEL + 0.1, heading, **where)
        _style.draw_key(ax, panel.keys, x=edge + 0.12, y=key_top, loc="upper left")
        _style.draw_caption(fig, lines, x=edge, y=box_bottom, width=column, height=box)
    draw_footer(fig, foot, top=box_bottom - 0.06)
    return fig
