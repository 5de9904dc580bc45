"""Quantities of every tap: credit against gradient, and sizes on a log axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from creditscope.auditing.stats import NULL_SDS
from creditscope.errors import CreditscopeError
from creditscope.plots._lines import Line, lines_of, say_diverged, say_missing, say_seeds
from creditscope.plots._panel import draw_series, label_ends, last_known, panel, set_log, write_note
from creditscope.plots._quantities import (
    NotMeasuredError,
    check_per_tap,
    is_size,
    mean_and_half,
    mean_sd,
    take_log,
    title,
)
from creditscope.plots._style import BAND, FAINT, INK
from creditscope.text import subscript

NULLS = {
    "cos": ("", "null_sd"),
    "cos_F": ("", "null_sd_F"),
    "stage_cos": ("", "stage_null_sd"),
    "beta": ("", "beta_null_sd"),
    "descent": ("descent_null", "descent_null_sd"),
    "descent_stage": ("descent_stage_null", "descent_stage_null_sd"),
}
"""Mean and sd of a quantity where the credit is turned at random; without a field the mean is 0."""
COSINES = ("cos", "cos_F", "cos_input", "stage_cos")
TICKS = 12
"""Taps that are named on an axis, at most."""


def credit(records: Any, *, quantity: str = "cos", ax: Axes | None = None, labels: bool = True) -> Axes:
    """A quantity of every tap's credit by method, mean and 95 % t interval over seeds, on what random credit gives.

    `quantity` is a per-tap field of a snapshot; markers are hollow at taps with exact credit. `labels` writes names.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> plots.credit(runs).get_ylabel()
    'cos(aₗ, gₗ)'
    """
    check_per_tap(quantity)
    lines = lines_of(records)
    drawn = [line for line in lines if np.isfinite(line.per_tap(quantity)).any()]
    if not drawn:
        raise NotMeasuredError(quantity)
    with panel(ax, drawn, labels=labels) as ax:
        middle, half = null_band(drawn, quantity)
        has_band, hollow = bool(np.isfinite(half).any()), any(line.facts.exact_taps for line in drawn)
        if has_band:
            ax.bar(
                np.arange(len(half)), 2 * half, bottom=middle - half, width=1.0, color=BAND, lw=0, zorder=0, gid="null"
            )
        ax.axhline(0, color=INK, lw=0.7, ls=":", zorder=1)
        found = [mean_and_half(line.per_tap(quantity).T) for line in drawn]
        where = [{"joined": line.facts.gamma_taps, "hollow": line.facts.exact_taps} for line in drawn]
        _draw_taps(ax, drawn, quantity, [(mean, bars, bars) for mean, bars in found], where, labels=labels)
        write_note(
            ax,
            say_seeds(drawn, marks="mean, 95 % t interval over"),
            "grey: random orientation of one run, 95 %" * has_band,
            "hollow: exact credit" * hollow,
            say_diverged(lines),
            say_missing(lines, drawn),
        )
    return ax


def sizes(records: Any, quantity: str = "g_norm", *, ax: Axes | None = None, labels: bool = True) -> Axes:
    """A size of every tap by method: geometric mean over seeds, and one sd of log10 to either side.

    `quantity` is a per-tap field of a snapshot or growth; values of 0 have no place here, and are said. `labels` writes
    names.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> plots.sizes(runs, "h_norm").get_yscale()
    'log'
    """
    check_per_tap(quantity)
    if not is_size(quantity):
        raise CreditscopeError(
            f"Expected a size to draw on a log axis, but got {quantity}, which may be negative. Call "
            f"plots.credit(records, quantity={quantity!r})."
        )
    lines = lines_of(records)
    drawn = [line for line in lines if (line.per_tap(quantity) > 0).any()]
    if not drawn:
        raise NotMeasuredError(quantity, form="values above 0 of")
    with panel(ax, drawn, labels=labels) as ax:
        set_log(ax)
        logs = [mean_sd(take_log(line.per_tap(quantity))) for line in drawn]
        reach = np.concatenate([mean + sign * np.nan_to_num(sd) for mean, sd in logs for sign in (-1, 1)])
        ax.set_ylim(10 ** (np.nanmin(reach) - 0.3), 10 ** (np.nanmax(reach) + 0.3))
        found = [(10**mean, 10**mean - 10 ** (mean - sd), 10 ** (mean + sd) - 10**mean) for mean, sd in logs]
        where = [{"joined": range(len(line.facts.taps))} for line in drawn]
        _draw_taps(ax, drawn, quantity, found, where, labels=labels)
        zeros = sum(int((line.per_tap(quantity) <= 0).sum()) for line in lines)
        write_note(
            ax,
            say_seeds(drawn, marks="geometric mean, sd of log10 over"),
            f"values of 0 or less, not drawn: {zeros}" * bool(zeros),
            say_diverged(lines),
            say_missing([line for line in lines if not (line.per_tap(quantity) <= 0).any()], drawn),
        )
    return ax


def _draw_taps(
    ax: Axes,
    lines: Sequence[Line],
    quantity: str,
    found: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    where: Sequence[dict[str, Any]],
    *,
    labels: bool,
) -> None:
    """Of every line its values and bars (down, up), a little sideways so that equal values stay visible."""
    step, ends = 0.54 / len(lines), []
    for i, (line, (y, *bars), how) in enumerate(zip(lines, found, where, strict=True)):
        shift = step * (i - (len(lines) - 1) / 2)
        draw_series(ax, line, np.arange(len(y)) + shift, y, bars, **how)
        ends.append((line.look, last_known(y)))
    if quantity in COSINES:
        ax.set_ylim(max(min(ax.get_ylim()[0], -0.25), -1.12), 1.12)
    ax.set_ylabel(title(quantity))
    taps, stem = max(len(line.facts.taps) for line in lines), lines[0].facts.stem_tap
    ticks = range(0, taps, 1 + (taps - 1) // TICKS)
    ax.set_xticks(ticks, [subscript("h", tap) for tap in ticks])
    ax.set_xlim(-0.5, taps - 0.5)
    ax.set_xlabel("tap (h₀: stem)" if stem else "tap")
    if stem:
        ax.axvline(0.5, color=FAINT, lw=0.5, zorder=1)
    label_ends(ax, ends if labels else [])


def null_band(lines: Sequence[Line], quantity: str) -> tuple[np.ndarray, np.ndarray]:
    """Middle and half width of the null band per tap: 1.96 × the mean null sd over runs of methods inexact there."""
    taps = max(len(line.facts.taps) for line in lines)
    centre, sd = NULLS.get(quantity, ("", ""))
    means = [_inexact(line, centre, taps) for line in lines] if centre else [np.zeros((1, taps))]
    sds = [_inexact(line, sd, taps) for line in lines] if sd else [np.full((1, taps), np.nan)]
    return mean_sd(np.concatenate(means))[0], NULL_SDS * mean_sd(np.concatenate(sds))[0]


def _inexact(line: Line, field: str, taps: int) -> np.ndarray:
    """A field of every run, (seeds, taps); NaN where credit is exact."""
    found = np.full((len(line.whole), taps), np.nan)
    found[:, : len(line.facts.taps)] = line.per_tap(field)
    found[:, list(line.facts.exact_taps)] = np.nan
    return found
