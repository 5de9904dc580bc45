"""Figures: one file each, drawn from records alone. Importing this imports neither torch nor matplotlib."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from creditscope.plots import save_figure
from creditscope.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from creditscope.plots import Caption
    from creditscope.record import Record


register_figure = FIGURES.register


def describe_figure(plot: Callable[..., "Figure"], records: Sequence["Record"]) -> "Caption | None":
    """What a figure states, where its file has a function `describe(records)`."""
    describe = getattr(sys.modules[plot.__module__], "describe", None)
    return describe(records) if describe else None


__all__ = ["FIGURES", "describe_figure", "register_figure", "save_figure"]
