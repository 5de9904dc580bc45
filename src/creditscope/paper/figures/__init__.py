"""Figures: one file each, drawn from records alone. Importing this imports neither torch nor matplotlib."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING

from creditscope.errors import CreditscopeError
from creditscope.plots import save_figure
from creditscope.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from creditscope.paper.figures._layout import Page
    from creditscope.plots import Caption
    from creditscope.plots._film import Film
    from creditscope.record import Record


register_figure = FIGURES.register


def draw_figure(
    plot: Callable[..., "Figure"], records: Sequence["Record"], *, page: "Page | None" = None, caption: bool = False
) -> tuple["Figure", "Caption | None"]:
    """A figure and what it states, of the panels that are drawn; `caption` writes its words below the panels, too."""
    from creditscope.paper.figures._layout import Page

    said = describe_figure(plot, records)
    if "page" not in signature(plot).parameters:
        if page or caption:
            raise CreditscopeError(
                f"Expected a figure that can be drawn at a width of choice, but {plot.__name__} takes no page. "
                "Leave out --width, --panels and --captions."
            )
        return plot(records), said
    page = page or Page()
    if said and page.panels:
        said = said.of_panels(page.panels)
    return plot(records, page=replace(page, caption=said if caption else None)), said


def describe_figure(plot: Callable[..., "Figure"], records: Sequence["Record"]) -> "Caption | None":
    """What a figure states, where its file has a function `describe(records)`."""
    describe = getattr(sys.modules[plot.__module__], "describe", None)
    return describe(records) if describe else None


def moves(plot: Callable[..., "Figure"]) -> bool:
    """Whether its file has a function `film(records)`."""
    return hasattr(sys.modules[plot.__module__], "film")


def film_figure(
    plot: Callable[..., "Figure"], records: Sequence["Record"], *, page: "Page | None" = None
) -> "Film | None":
    """A figure that moves, where its file has a function `film(records)`."""
    make = getattr(sys.modules[plot.__module__], "film", None)
    return make(records, **({"page": page} if page else {})) if make else None


__all__ = ["FIGURES", "describe_figure", "draw_figure", "film_figure", "moves", "register_figure", "save_figure"]
