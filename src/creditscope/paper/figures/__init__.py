"""Figures: one file each, drawn from records alone. Importing this imports neither torch nor matplotlib."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from creditscope.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from creditscope.record import Record


register_figure = FIGURES.register


def save_figure(fig: "Figure", folder: str | Path, name: str) -> list[Path]:
    """Write NAME.png and NAME.pdf (Type-42 fonts, no date, so equal figures are equal files)."""
    from creditscope.paper.figures._style import styled

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    png, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    with styled():
        fig.savefig(png)
        fig.savefig(pdf, metadata={"CreationDate": None})
    return [png, pdf]


def describe_figure(plot: Callable[..., "Figure"], records: Sequence["Record"]) -> str:
    """What a figure says in plain text, where its file has a function `describe(records)`; else nothing."""
    describe = getattr(sys.modules[plot.__module__], "describe", None)
    return describe(records) if describe else ""


__all__ = ["FIGURES", "describe_figure", "register_figure", "save_figure"]
