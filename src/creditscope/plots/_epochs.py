"""A quantity over training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.plots._labels import label_ends, write_note
from creditscope.plots._lines import Line, lines_of, say_missing, say_seeds
from creditscope.plots._panel import panel
from creditscope.plots._quantities import HEAD, NotMeasuredError, is_size, of_taps, title
from creditscope.record import Facts, Record
from creditscope.record.table import PER_TAP, SCALARS

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
    courses = [_courses(line, quantity, tap, log=log) for line in lines]
    drawn = [(line, found) for line, found in zip(lines, courses, strict=True) if any(found.values())]
    if not drawn:
        raise NotMeasuredError(quantity, form="values above 0 of" if log else "values of")
    shown = [line for line, _ in drawn]
    with panel(ax, shown, labels=labels) as ax:
        if log:
            ax.set_yscale("log")
        ends = []
        for line, found in drawn:
            look = {"color": line.look.colour, "marker": line.look.marker}
            for course in found.values():
                size = 3.0 if len(course) == 1 else 0.0
                thin = {"lw": 0.5, "alpha": 0.45, "ms": size, "zorder": 2}
                ax.plot(list(course), list(course.values()), gid=f"{line.look.label} seed", **look, **thin)
            mean = _mean([found[seed] for seed in found if seed not in line.method.diverged], log=log)
            thick = {"ls": line.dashes, "lw": 1.5, "ms": 3.0 if len(mean) == 1 else 0.0, "zorder": 3}
            ax.plot(list(mean), list(mean.values()), gid=f"{line.look.label} mean", **look, **thick)
            end = mean or max(found.values(), key=len)
            ends.append((line.look, list(end.values())[-1]))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        where = "" if tap is None else f", tap {_tap_name(drawn[0][0].facts, tap)}"
        ax.set(xlabel="epoch", ylabel=title(quantity) + where)
        ax.margins(x=0.03)
        label_ends(ax, ends if labels else [])
        several = any(len(found) > 1 for _, found in drawn)
        write_note(
            ax,
            f"thin: each seed; thick: {'geometric ' * log}mean" if several else say_seeds(shown, marks=""),
            _say_ended(lines),
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


def _courses(line: Line, quantity: str, tap: int | str | None, *, log: bool) -> dict[int, Course]:
    """By seed, the values there are; on a log axis those above 0."""
    return {seed: _course(record, quantity, tap, log=log) for seed, record in line.method.runs.items()}


def _course(record: Record, quantity: str, tap: int | str | None, *, log: bool) -> Course:
    at = None if tap is None else _tap_number(record.facts, tap)
    found = {}
    for snapshot in record.snapshots:
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


def _tap_name(facts: Facts, tap: int | str) -> str:
    number = _tap_number(facts, tap)
    return f"{number} ({facts.taps[number]})"


def _say_ended(lines: Sequence[Line]) -> str:
    """Which methods have runs that end early, in words."""
    said = [f"{e.look.label} ({len(e.method.diverged)} of {len(e.method.runs)})" for e in lines if e.method.diverged]
    return f"diverged, drawn until then: {', '.join(said)}" if said else ""
