"""The usual pair of numbers: accuracy against Γ."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from creditscope.plots._labels import POINTS, label_points, when_laid_out, write_note
from creditscope.plots._lines import Line, lines_of, say_diverged, say_missing, say_seeds
from creditscope.plots._panel import panel
from creditscope.plots._quantities import NotMeasuredError, title
from creditscope.plots._style import FAINT, GREY, MARK, SMALL

NAMES = ("gamma", "accuracy")
FEW = 4
"""Methods whose names may find room beside their points."""


def pair(records: Any, *, ax: Axes | None = None, labels: bool = True, guess: bool = True) -> Axes:
    """Accuracy against Γ at the end of training: every seed a dot, a mean per method, and the best constant guess.

    `labels` writes names beside the means, or in a key where they would touch; `guess` draws that of the constant.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> plots.pair(runs).get_ylabel()
    'accuracy'
    """
    lines = lines_of(records)
    drawn = [line for line in lines if np.isfinite(_points(line)).all(axis=0).any()]
    if not drawn:
        lacking = [n for n in NAMES if not any(np.isfinite(line.per_run(n)).any() for line in lines)]
        raise NotMeasuredError(" and ".join(map(title, lacking or NAMES)))
    with panel(ax, drawn, labels=labels and len(drawn) > FEW) as ax:
        means, dots = [], []
        for line in drawn:
            points = _points(line)[:, np.isfinite(_points(line)).all(axis=0)]
            (x, y), look = points.mean(axis=1), line.look
            ax.plot(*points, "o", color=look.colour, ms=2.6, mew=0, zorder=4, gid=f"{look.label} seeds")
            face = {"color": look.colour, "mec": "white", "mew": 0.5, "ms": 72 * MARK, "ls": ""}
            ax.plot([x], [y], marker=look.marker, zorder=5, gid=f"{look.label} mean", **face)
            means.append((look, float(x), float(y)))
            dots += points.T.tolist()
        ax.axvline(0, color=FAINT, lw=0.6, zorder=1)
        _draw_guess(ax, drawn if guess else [])
        ax.margins(0.14)
        ax.relim()
        ax.set(xlabel=title("gamma"), ylabel=title("accuracy"))
        write_note(
            ax, say_seeds(drawn, marks="mean (marker) and each of"), say_diverged(lines), say_missing(lines, drawn)
        )
        if labels:
            when_laid_out(ax, POINTS, lambda: label_points(ax, means, dots) or _draw_key(ax, drawn))
    return ax


def _points(line: Line) -> np.ndarray:
    """Γ and accuracy, (2, seeds)."""
    return np.array([line.per_run(name) for name in NAMES])


def _draw_guess(ax: Axes, lines: Sequence[Line]) -> None:
    """A line at the accuracy of the best constant guess, else of chance, with its name."""
    levels = {}
    for facts in (line.facts for line in lines):
        level = facts.chance if facts.best_constant is None else facts.best_constant
        if level is not None:
            levels[level] = "chance" if facts.best_constant is None else "best constant guess"
    for level, name in levels.items():
        ax.axhline(level, color=FAINT, lw=0.6, ls="--", zorder=1, gid="chance")
        look = {"color": GREY, "size": SMALL, "ha": "right", "va": "bottom", "zorder": 1}
        ax.annotate(name, (1, level), (-2, 1), xycoords=ax.get_yaxis_transform(), textcoords="offset points", **look)


def _draw_key(ax: Axes, lines: Sequence[Line]) -> None:
    """Right of the axes, the best method first."""
    ordered = sorted(lines, key=lambda line: -np.nanmean(line.per_run("accuracy")))
    keys = [
        Line2D([], [], color=line.look.colour, marker=line.look.marker, ms=4, ls="", label=line.look.label)
        for line in ordered
    ]
    spacing = {"borderpad": 0, "borderaxespad": 0, "labelspacing": 0.35, "handlelength": 1.0, "handletextpad": 0.5}
    ax.legend(
        handles=keys, loc="center left", bbox_to_anchor=(1.04, 0.5), fontsize=SMALL, labelcolor="linecolor", **spacing
    )
