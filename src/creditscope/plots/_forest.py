"""Means over seeds with their intervals, a row each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from creditscope.auditing.stats import geometric_interval, t_interval
from creditscope.errors import CreditscopeError
from creditscope.plots._panel import SIZE, new_axes, set_log, write_note
from creditscope.plots._style import BAND, GREY, INK, SMALL, text_width
from creditscope.text import count, span

ROW = 0.2
"""Height of a row in a figure of its own, inches."""


@dataclass(frozen=True)
class Estimate:
    """Values of one thing, one for each seed: in which row they are drawn, and how.

    >>> from creditscope import plots
    >>> plots.Estimate("DFA", [0.3, float("nan"), 0.4]).known().tolist()
    [0.3, 0.4]
    """

    row: str
    values: Sequence[float] | np.ndarray
    name: str = ""
    """Which one of its row, where there are several."""
    marker: str = "o"
    colour: str = INK
    face: str = "white"
    note: str = ""
    """What is written at the left of the row."""

    def known(self, *, log: bool = False) -> np.ndarray:
        """The values there are; on a log axis those above 0."""
        found = np.asarray(self.values, dtype=float)
        return found[np.isfinite(found) & (found > 0 if log else True)]


def forest(estimates: Sequence[Estimate], *, log: bool = False, ax: Axes | None = None, labels: bool = True) -> Axes:
    """A row for each label: the mean with its 95 % t interval over seeds, and every seed as a tick.

    Estimates of the same row are drawn below one another; `labels` writes their names. With `log` means and intervals
    are those of the logarithm. Values that are not drawn, because they are no numbers or have no logarithm, are said.

    >>> from creditscope import plots
    >>> ax = plots.forest([plots.Estimate("BP", [0.7, 0.72]), plots.Estimate("DFA", [0.3, 0.4])])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['BP', 'DFA']
    """
    if not estimates or not all(isinstance(one, Estimate) for one in estimates):
        raise CreditscopeError(
            f"Expected a list of plots.Estimate to draw, but got {estimates!r:.60}. "
            "Write [plots.Estimate(label, values), …]."
        )
    rows: dict[str, list[Estimate]] = {}
    for one in estimates:
        rows.setdefault(one.row, []).append(one)
    room = max(text_width(row) for row in rows) + max(text_width(one.name) for one in estimates)
    with new_axes(ax, (SIZE[0] + room, 0.6 + ROW * len(estimates))) as ax:
        if log:
            set_log(ax, "x")
        ax.set_yticks(range(len(rows)), list(rows))
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.minorticks_off()
        for y, own in enumerate(rows.values()):
            if y:
                ax.axhline(y - 0.5, color=BAND, lw=0.5, zorder=0)
            for i, one in enumerate(own):
                _draw(ax, one, y + (i - (len(own) - 1) / 2) / (len(own) + 1), log=log, labels=labels)
        counts = [size for one in estimates if (size := one.known(log=log).size)]
        seeds = f"{span(min(counts), max(counts))} seeds" if counts and max(counts) > 1 else "one seed"
        lost = sum(len(one.values) for one in estimates) - sum(counts)
        why = "not numbers above 0" if log else "not numbers"
        write_note(
            ax,
            f"{'geometric ' * log}mean, 95 % t interval over {seeds}",
            f"{why}, not drawn: {count(lost, 'value')}" * bool(lost),
        )
    return ax


def _draw(ax: Axes, one: Estimate, y: float, *, log: bool, labels: bool) -> None:
    known, name = one.known(log=log), f"{one.row} {one.name}".strip()
    if known.size:
        found = (geometric_interval if log else t_interval)(known.tolist())
        ax.plot(found.ends, [y, y], color=one.colour, lw=0.9, zorder=3, solid_capstyle="butt", gid=f"{name} interval")
        ax.plot(known, [y] * len(known), "|", color=one.colour, ms=3.5, mew=0.7, zorder=3, gid=f"{name} seeds")
        look = {"mec": one.colour, "mfc": one.face, "mew": 0.7, "ms": 4.2}
        ax.plot([found.mean], [y], one.marker, zorder=4, gid=name, **look)
    side = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False}
    how = {"size": SMALL, "color": GREY, "va": "center", "zorder": 2.5}
    if one.note:
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        ax.annotate(one.note, (0, y), (3, 0), bbox=ground, gid=f"{name} note", **side, **how)
    if one.name and labels:
        ax.annotate(one.name, (1, y), (4, 0), gid=f"{name} name", **side, **{**how, "color": one.colour})
