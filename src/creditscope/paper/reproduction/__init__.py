"""Published numbers beside measured ones: one page, made from records. No torch."""

from collections.abc import Sequence
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.record import Record
from creditscope.record.store import write_atomically


def write_reproduction(records: Sequence[Record], path: str | Path, *, root: str | Path) -> Path:
    """Write the page to `path`; rescaled nets are looked for under `root`, the folder the records came from."""
    from creditscope.paper.reproduction.page import render_page

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_page(records, _load_rescaled(records, Path(root))))
    return path


def _load_rescaled(records: Sequence[Record], root: Path) -> list[Record]:
    """What is on disk of study `rescaling` at scale "paper"; nothing if nothing is."""
    from creditscope.paper.studies._study import find_wanted
    from creditscope.paper.studies.rescaling import measure_rescaled, rescaling

    try:
        return measure_rescaled(find_wanted(rescaling("paper"), records), root, measure=False, problems=[])
    except CreditscopeError:
        return []


__all__ = ["write_reproduction"]
