"""Panels that draw any records, and figures of them. Importing this imports neither torch nor matplotlib."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from creditscope.plots._caption import Caption, Statement
    from creditscope.plots._credit import credit
    from creditscope.plots._epochs import over_epochs
    from creditscope.plots._forest import Estimate, forest
    from creditscope.plots._ladder import ladder
    from creditscope.plots._overview import overview
    from creditscope.plots._pair import pair
    from creditscope.plots._sizes import sizes
    from creditscope.plots._verdicts import verdicts

__all__ = [
    "Caption",
    "Estimate",
    "Statement",
    "credit",
    "forest",
    "ladder",
    "over_epochs",
    "overview",
    "pair",
    "save_figure",
    "sizes",
    "verdicts",
]

_HOMES = {
    "Caption": "_caption",
    "Estimate": "_forest",
    "Statement": "_caption",
    "credit": "_credit",
    "forest": "_forest",
    "ladder": "_ladder",
    "over_epochs": "_epochs",
    "overview": "_overview",
    "pair": "_pair",
    "sizes": "_sizes",
    "verdicts": "_verdicts",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'creditscope.plots' has no attribute {name!r}")
    return getattr(import_module(f"creditscope.plots.{_HOMES[name]}"), name)


def save_figure(fig: "Figure | Axes", folder: str | Path, name: str, *, caption: "Caption | None" = None) -> list[Path]:
    """Write a figure, or that of a panel, as NAME.png and NAME.pdf: Type-42 fonts, no date, so equal figures are equal.

    With a caption NAME.md and NAME.tex, too, which show the figure above its words and numbers.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> [path.name for path in plots.save_figure(runs.plot(), "figures", "mine")]
    ['mine.png', 'mine.pdf']
    """
    from creditscope.plots._style import styled

    if caption is not None and not hasattr(caption, "markdown"):
        raise CreditscopeError(f"Expected a plots.Caption beside a figure, but got {type(caption).__name__}.")
    page: Any = fig.figure  # of a figure itself
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    png, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    with styled():
        page.savefig(png)
        page.savefig(pdf, metadata={"CreationDate": None})
    return [png, pdf, *(caption.save(folder, name) if caption else [])]
