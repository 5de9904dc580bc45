"""Draw many figures from records that were loaded once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.commands._printing import say
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from creditscope.record import Record
    from creditscope.studies import Study


def drawable(names: Sequence[str] | None = None) -> list[str]:
    """Figures that have a study of the same name; of those named, or all."""
    from creditscope.registry import FIGURES, STUDIES

    studies = STUDIES.names()
    return [name for name in FIGURES.names() if name in (studies if names is None else names)]


def draw_figures(
    names: Sequence[str],
    records: Sequence["Record"],
    root: Path,
    out: Path,
    *,
    find_study: Callable[[str], "Study"],
    measure: bool = False,
    **how: Any,
) -> int:
    """Draw each figure from those of the records that its study wants; what cannot be drawn is said.

    Nothing is trained; with `measure`, what a study derives from its runs is measured where it is missing. Returns how
    many were drawn.
    """
    from creditscope.figures import save_figure
    from creditscope.registry import FIGURES
    from creditscope.studies import collect, find_missing

    drawn = 0
    for name in names:
        notes: list[str] = []
        try:
            study, plot = find_study(name), FIGURES.get(name)
            missing = len(find_missing(study, records))
            found = collect(study, root, records=records, train=measure and not missing, problems=notes, **how)
            paths = save_figure(plot(found), out, name)
        except CreditscopeError as error:
            say([f"{name}: not drawn. {error}"])
            continue
        drawn += 1
        say([f"{name}: {len(study.runs) - missing} of {len(study.runs)} runs, wrote {', '.join(map(str, paths))}"])
        say([f"  note: {note}" for note in notes])
    return drawn
