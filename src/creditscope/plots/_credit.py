"""Credit against gradient, per tap."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from creditscope.auditing.stats import NULL_SDS
from creditscope.plots._labels import label_ends, write_note
from creditscope.plots._lines import Line, lines_of, say_diverged, say_missing, say_seeds
from creditscope.plots._panel import dodge, draw_series, draw_tap_axis, last_known, panel
from creditscope.plots._quantities import NotMeasuredError, check_per_tap, mean_and_half, mean_sd, title
from creditscope.plots._style import BAND, INK

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
            ax.bar(np.arange(len(half)), 2 * half, bottom=middle - half, width=1.0, color=BAND, lw=0, zorder=0)
        ax.axhline(0, color=INK, lw=0.7, ls=":", zorder=1)
        ends = []
        for shift, line in zip(dodge(drawn), drawn, strict=True):
            mean, bars = mean_and_half(line.per_tap(quantity).T)
            where = {"joined": line.facts.gamma_taps, "hollow": line.facts.exact_taps}
            draw_series(ax, line, np.arange(len(mean)) + shift, mean, (bars, bars), **where)
            ends.append((line.look, last_known(mean)))
        if quantity in COSINES:
            low, _ = ax.get_ylim()
            ax.set_ylim(max(min(low, -0.25), -1.12), 1.12)
        ax.set_ylabel(title(quantity))
        draw_tap_axis(ax, drawn)
        label_ends(ax, ends if labels else [])
        write_note(
            ax,
            say_seeds(drawn, marks="mean, 95 % t interval over"),
            "grey: random orientation of one run, 95 %" * has_band,
            "hollow: exact credit" * hollow,
            say_diverged(lines),
            say_missing(lines, drawn),
        )
    return ax


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
