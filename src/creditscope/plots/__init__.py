"""Panels that draw any records, and figures of them. Importing this imports neither torch nor matplotlib."""

from collections.abc import Sequence
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
    from creditscope.plots._film import Film
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

FORMATS: dict[str, dict[str, None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
"""What a figure is written as, and what is left out there."""
MOVING = "gif"
"""What a film is written as."""
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


def check_formats(formats: Sequence[str]) -> None:
    """Refuse what a figure cannot be written as."""
    known = (*FORMATS, MOVING)
    if not formats or not set(formats) <= set(known):
        got = ", ".join(map(repr, formats)) or "none"
        raise CreditscopeError(f"Expected formats among {', '.join(known)}, but got {got}.")


def save_figure(
    fig: "Figure | Axes",
    folder: str | Path,
    name: str,
    *,
    caption: "Caption | None" = None,
    formats: Sequence[str] = ("png", "pdf"),
    film: "Film | None" = None,
) -> list[Path]:
    """Write a figure, or that of a panel, as NAME.png and NAME.pdf: Type-42 fonts, no date, so equal figures are equal.

    With a caption NAME.md and NAME.tex, too, which show the figure above its words and numbers. `formats` are among
    png, pdf and svg, and gif of a `film`.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> [path.name for path in plots.save_figure(runs.plot(), "figures", "mine")]
    ['mine.png', 'mine.pdf']
    """
    from creditscope.plots._style import styled

    if caption is not None and not hasattr(caption, "markdown"):
        raise CreditscopeError(f"Expected a plots.Caption beside a figure, but got {type(caption).__name__}.")
    check_formats(formats)
    if MOVING in formats and film is None:
        raise CreditscopeError(f"Expected a figure that moves for a {MOVING}, but {name} does not. Ask for png or svg.")
    page: Any = fig.figure  # of a figure itself
    folder, files = Path(folder), dict[Path, str | bytes]()
    with styled():
        for kind in dict.fromkeys(kind for kind in formats if kind != MOVING):
            page.savefig(drawn := BytesIO(), format=kind, metadata=FORMATS[kind])
            files[folder / f"{name}.{kind}"] = drawn.getvalue()
    if film and MOVING in formats:
        files[folder / f"{name}.{MOVING}"] = film.to_gif()
    if caption:
        shown = next((kind for kind in ("png", "svg") if kind in formats), formats[0])
        printed = next((kind for kind in ("pdf", "png") if kind in formats), formats[0])
        files[folder / f"{name}.md"] = caption.markdown(name, shown)
        files[folder / f"{name}.tex"] = caption.tex(name, printed)
    return write_whole(files)
