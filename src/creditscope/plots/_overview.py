"""Panels put together as one figure."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.plots._credit import credit
from creditscope.plots._epochs import over_epochs
from creditscope.plots._labels import laid_out_once
from creditscope.plots._ladder import ladder
from creditscope.plots._lines import gather, lines_of_one_setting, name_room
from creditscope.plots._pair import pair
from creditscope.plots._quantities import NotMeasuredError
from creditscope.plots._sizes import sizes
from creditscope.plots._style import BODY, GREY, SMALL, WIDTH, styled, wrap_text
from creditscope.plots._verdicts import ROW, verdicts

Draw = Callable[..., Axes]
PANELS: dict[str, Draw] = {
    "pair": pair,
    "credit": credit,
    "sizes": sizes,
    "over_epochs": over_epochs,
    "ladder": ladder,
    "verdicts": verdicts,
}
HEIGHT = 2.5
"""Of the row of panels, inches."""
NAMED, ROOM = 5, 0.8
"""Methods whose names are written in the panels, and the inches a name may have; else the verdicts are the key."""
COLUMN = 1.9
"""Least width of a panel without names, inches."""


def overview(records: Any, *, panels: Sequence[str | Draw] = ("pair", "credit", "sizes", "verdicts")) -> Figure:
    """Panels side by side, with the verdicts below, of the records of one setting.

    `panels` are names, or functions that take records and `ax`, such as functools.partial(plots.sizes,
    quantity="h_norm"). A panel that nobody measured says so in its place.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> [ax.get_label() for ax in plots.overview(runs, panels=("sizes", "verdicts")).axes]
    ['verdicts', 'sizes']
    """
    found = gather(records)
    lines = lines_of_one_setting(found)
    if not panels:
        raise CreditscopeError(f"Expected at least one panel, but got none. Choose among {', '.join(PANELS)}.")
    for name in panels:
        if isinstance(name, str) and name not in PANELS:
            raise UnknownNameError("panel", name, PANELS)
    row, strip = [name for name in panels if name != "verdicts"], "verdicts" in panels
    named = not strip or (len(lines) <= NAMED and name_room(lines) < ROOM)
    heights = [HEIGHT] * bool(row) + [ROW * len(lines)] * strip
    width = max(WIDTH, len(row) * (COLUMN + named * name_room(lines)))
    with styled():
        fig = Figure(figsize=(width, sum(heights) + 0.35), layout="constrained")
        fig.suptitle(lines[0].method.setting, x=0.01, ha="left", size=BODY, weight="bold")
        grid = fig.add_gridspec(len(heights), max(len(row), 1), height_ratios=heights)
        if strip:
            verdicts(found, ax=fig.add_subplot(grid[-1, :], label="verdicts"))
        axes = [fig.add_subplot(grid[0, i], label=name if isinstance(name, str) else "") for i, name in enumerate(row)]
        with laid_out_once(fig):
            for name, ax in zip(row, axes, strict=True):
                try:
                    _ = PANELS[name](found, ax=ax, labels=named) if isinstance(name, str) else name(found, ax=ax)
                except NotMeasuredError as error:
                    _say_instead(ax, str(error))
        right = max((text.get_window_extent().x1 for ax in fig.axes for text in ax.texts), default=0) / fig.dpi
        if right > width:
            fig.set_figwidth(right + 0.1)
            fig.draw_without_rendering()
    return fig


def _say_instead(ax: Axes, text: str) -> None:
    """Small grey lines where a panel would be."""
    ax.axis("off")
    ax.text(0, 1, "\n".join(wrap_text(text, width=1.6)), transform=ax.transAxes, va="top", size=SMALL, color=GREY)
