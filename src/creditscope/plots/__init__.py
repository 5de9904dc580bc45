"""Panels that draw any records, and figures of them. Importing this imports neither torch nor matplotlib."""

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError
from creditscope.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from creditscope.plots._caption import Caption, Statement
    from creditscope.plots._forest import Estimate, forest
    from creditscope.plots._overview import overview, verdicts
    from creditscope.plots._runs import ladder, over_epochs, pair
    from creditscope.plots._taps import credit, sizes

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
    "_caption": ("Caption", "Statement"),
    "_forest": ("Estimate", "forest"),
    "_overview": ("overview", "verdicts"),
    "_runs": ("ladder", "over_epochs", "pair"),
    "_taps": ("credit", "sizes"),
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"creditscope.plots.{home}"), name)
    raise AttributeError(f"module 'creditscope.plots' has no attribute {name!r}")


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
    folder, files = Path(folder), dict[Path, str | bytes]()
    with styled():
        for kind, how in (("png", {}), ("pdf", {"metadata": {"CreationDate": None}})):
            page.savefig(drawn := BytesIO(), format=kind, **how)
            files[folder / f"{name}.{kind}"] = drawn.getvalue()
    if caption:
        files |= {folder / f"{name}.md": caption.markdown(name), folder / f"{name}.tex": caption.tex(name)}
    return write_whole(files)
