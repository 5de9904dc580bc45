"""Sizes per tap, on a log axis."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from creditscope.errors import CreditscopeError
from creditscope.plots._labels import label_ends, write_note
from creditscope.plots._lines import lines_of, say_diverged, say_missing, say_seeds
from creditscope.plots._panel import dodge, draw_series, draw_tap_axis, last_known, panel
from creditscope.plots._quantities import NotMeasuredError, check_per_tap, is_size, mean_sd, take_log, title


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
        ax.set_yscale("log")
        found = [mean_sd(take_log(line.per_tap(quantity))) for line in drawn]
        reach = np.concatenate([mean + sign * np.nan_to_num(sd) for mean, sd in found for sign in (-1, 1)])
        ax.set_ylim(10 ** (np.nanmin(reach) - 0.3), 10 ** (np.nanmax(reach) + 0.3))
        ends = []
        for shift, line, (mean, sd) in zip(dodge(drawn), drawn, found, strict=True):
            y, x = 10**mean, np.arange(len(mean)) + shift
            draw_series(ax, line, x, y, (y - 10 ** (mean - sd), 10 ** (mean + sd) - y), joined=range(len(x)))
            ends.append((line.look, last_known(y)))
        ax.set_ylabel(title(quantity))
        draw_tap_axis(ax, drawn)
        label_ends(ax, ends if labels else [])
        zeros = sum(int((line.per_tap(quantity) <= 0).sum()) for line in lines)
        write_note(
            ax,
            say_seeds(drawn, marks="geometric mean, sd of log10 over"),
            f"values of 0 or less, not drawn: {zeros}" * bool(zeros),
            say_diverged(lines),
            say_missing([line for line in lines if not (line.per_tap(quantity) <= 0).any()], drawn),
        )
    return ax
