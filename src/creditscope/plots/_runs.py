"""Quantities of whole runs: accuracy against Γ, courses over epochs, and accuracy over trained blocks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from creditscope.auditing.methods import accuracies
from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.plots._lines import Line, lines_of, say_diverged, say_missing, say_seeds
from creditscope.plots._panel import (
    POINTS,
    draw_series,
    label_ends,
    label_points,
    panel,
    set_log,
    when_laid_out,
    write_note,
)
from creditscope.plots._quantities import HEAD, NotMeasuredError, is_size, mean_and_half, of_taps, title
from creditscope.plots._style import FAINT, GREY, MARK, SMALL
from creditscope.record import Facts, Record
from creditscope.record.table import PER_TAP, SCALARS
from creditscope.record.timeline import along_axis, axis_of

NAMES = ("gamma", "accuracy")
MARKS = 5
"""On a line without a name, about."""
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
    looks = [line.look for line in ordered]
    keys = [Line2D([], [], color=o.colour, marker=o.marker, ms=4, ls="", label=o.label) for o in looks]
    how = {"borderpad": 0, "borderaxespad": 0, "labelspacing": 0.35, "handlelength": 1.0, "handletextpad": 0.5}
    how |= {"fontsize": SMALL, "labelcolor": "linecolor"}
    ax.legend(handles=keys, loc="center left", bbox_to_anchor=(1.04, 0.5), **how)


Course = dict[int, float]
"""Value by epoch, of one run."""


def over_epochs(
    records: Any,
    quantity: str = "accuracy",
    *,
    tap: int | str | None = None,
    ax: Axes | None = None,
    labels: bool = True,
) -> Axes:
    """A quantity over epochs: a thin line per seed, a thick one for the mean of each method.

    `quantity` is a number of a snapshot (accuracy, gamma, loss, …), or with `tap` one of its taps: its number, from the
    last on as -1, or its name. "head_taps.h_norm" is that of the class token alone, where there is one. Norms are on a
    log axis, with geometric means. A mean is over the seeds that did not diverge, at the epochs that all of them have.
    `labels` writes names.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> plots.over_epochs(runs, "h_norm", tap=1).get_yscale()
    'log'
    """
    _check(quantity, tap)
    lines, log = lines_of(records), tap is not None and is_size(quantity)
    drawn = []
    for line in lines:
        found = {seed: _course(record, quantity, tap, log=log) for seed, record in line.method.runs.items()}
        drawn += [(line, found)] * any(found.values())
    if not drawn:
        raise NotMeasuredError(quantity, form="values above 0 of" if log else "values of")
    shown = [line for line, _ in drawn]
    with panel(ax, shown, labels=labels) as ax:
        if log:
            set_log(ax)
        ends = []
        for line, found in drawn:
            look = {"color": line.look.colour, "marker": line.look.marker}
            for course in found.values():
                size = 3.0 if len(course) == 1 else 0.0
                thin = {"lw": 0.5, "alpha": 0.45, "ms": size, "zorder": 2}
                ax.plot(list(course), list(course.values()), gid=f"{line.look.label} seed", **look, **thin)
            mean = _mean([found[seed] for seed in found if seed not in line.method.diverged], log=log)
            size = 3.0 if len(mean) == 1 or not labels else 0.0  # without a name the marker tells a line in grey, too
            thick = {"ls": line.dashes, "lw": 1.5, "ms": size, "markevery": 1 + len(mean) // MARKS, "zorder": 3}
            ax.plot(list(mean), list(mean.values()), gid=f"{line.look.label} mean", **look, **thick)
            end = mean or max(found.values(), key=len)
            ends.append((line.look, list(end.values())[-1]))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        named = ""
        if tap is not None:
            number = _tap_number(shown[0].facts, tap)
            named = f", tap {number} ({shown[0].facts.taps[number]})"
        ax.set(xlabel=axis_of(shown[0].method.first), ylabel=title(quantity) + named)
        ax.margins(x=0.03)
        label_ends(ax, ends if labels else [])
        several, methods = any(len(found) > 1 for _, found in drawn), [(line.look.label, line.method) for line in lines]
        ended = [f"{name} ({len(own.diverged)} of {len(own.runs)})" for name, own in methods if own.diverged]
        write_note(
            ax,
            f"thin: each seed; thick: {'geometric ' * log}mean" if several else say_seeds(shown, marks=""),
            f"diverged, drawn until then: {', '.join(ended)}" if ended else "",
            say_missing(lines, shown),
        )
    return ax


def _check(quantity: str, tap: int | str | None) -> None:
    if quantity.removeprefix(HEAD) not in SCALARS + PER_TAP:
        raise UnknownNameError("quantity", quantity, SCALARS + PER_TAP)
    if tap is None and quantity not in SCALARS:
        raise CreditscopeError(
            f"Expected the tap of which to draw {quantity}, but got none. Add tap=, its number or its name."
        )
    if tap is not None and quantity in SCALARS:
        raise CreditscopeError(f"Expected no tap for {quantity}, which is of the whole net, but got {tap!r}.")


def _course(record: Record, quantity: str, tap: int | str | None, *, log: bool) -> Course:
    """The values there are; on a log axis those above 0."""
    at = None if tap is None else _tap_number(record.facts, tap)
    found = {}
    for snapshot in along_axis(record).snapshots:
        value = getattr(snapshot, quantity) if at is None else of_taps(record.facts, snapshot, quantity)[at]
        if value is not None and np.isfinite(value) and (value > 0 or not log):
            found[snapshot.epoch] = float(value)
    return found


def _mean(courses: Sequence[Mapping[int, float]], *, log: bool) -> Course:
    """At the epochs that all courses have that are not empty."""
    courses = [course for course in courses if course]
    shared = sorted(set.intersection(*map(set, courses))) if courses else []
    columns = {epoch: np.array([course[epoch] for course in courses]) for epoch in shared}
    return {e: float(10 ** np.log10(v).mean() if log else v.mean()) for e, v in columns.items()}


def _tap_number(facts: Facts, tap: int | str) -> int:
    taps = len(facts.taps)
    if isinstance(tap, str) and tap in facts.taps:
        return facts.taps.index(tap)
    if isinstance(tap, str) or tap not in range(-taps, taps):
        raise CreditscopeError(
            f"Expected a tap from 0 to {taps - 1} or among {', '.join(facts.taps)}, but got {tap!r}."
        )
    return tap % taps


def ladder(records: Any, *, ax: Axes | None = None, labels: bool = True) -> Axes:
    """Accuracy with only the last k blocks trained, by method: mean and 95 % t interval over seeds.

    k = 0 are frozen blocks, k = L the full run. Methods without any rung are not drawn. `labels` writes names.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick", ladder=True)
    >>> plots.ladder(runs).get_ylabel()
    'accuracy'
    """
    climbed = [(line, rungs) for line in lines_of(records) if len(rungs := _rungs(line)) > 1]
    if not climbed:
        raise NotMeasuredError(
            "accuracy with only the last blocks trained beside full runs",
            remedy="Train them by creditscope.run(..., ladder=True) or baselines=True.",
        )
    drawn, ends = [line for line, _ in climbed], []
    with panel(ax, drawn, labels=labels) as ax:
        for line, rungs in climbed:
            x = np.array(list(rungs), dtype=float)
            mean, half = mean_and_half(rungs.values())
            draw_series(ax, line, x, mean, (half, half), joined=range(len(x)))
            ends.append((line.look, float(mean[-1])))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel="last blocks trained (0: frozen)", ylabel=title("accuracy"))
        ax.margins(x=0.06, y=0.1)
        label_ends(ax, ends if labels else [])
        write_note(ax, say_seeds(drawn, marks="mean, 95 % t interval over"))
    return ax


def _rungs(line: Line) -> dict[int, np.ndarray]:
    """Accuracies by the number of trained blocks, those of all blocks last."""
    found: Mapping[int, Mapping[int, Record]] = {**line.method.rungs, line.facts.blocks: line.method.runs}
    known = {trained: list(accuracies(runs).values()) for trained, runs in sorted(found.items())}
    return {trained: np.array(values) for trained, values in known.items() if values}
