"""Accuracy over the number of trained blocks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from creditscope.auditing.methods import accuracies
from creditscope.plots._labels import label_ends, write_note
from creditscope.plots._lines import Line, lines_of, say_seeds
from creditscope.plots._panel import draw_series, panel
from creditscope.plots._quantities import NotMeasuredError, mean_and_half, title
from creditscope.record import Record


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
            mean, half = mean_and_half(np.array(list(found.values())) for found in rungs.values())
            draw_series(ax, line, x, mean, (half, half), joined=range(len(x)))
            ends.append((line.look, float(mean[-1])))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel="last blocks trained (0: frozen)", ylabel=title("accuracy"))
        ax.margins(x=0.06, y=0.1)
        label_ends(ax, ends if labels else [])
        write_note(ax, say_seeds(drawn, marks="mean, 95 % t interval over"))
    return ax


def _rungs(line: Line) -> dict[int, dict[int, float]]:
    """Accuracies by seed, by the number of trained blocks, those of all blocks last."""
    found: Mapping[int, Mapping[int, Record]] = {**line.method.rungs, line.facts.blocks: line.method.runs}
    return {trained: known for trained, runs in sorted(found.items()) if (known := accuracies(runs))}
