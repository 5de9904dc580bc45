"""Published numbers beside measured ones: one page, made from records. No torch."""

from collections.abc import Sequence
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.record import Record
from creditscope.record.store import write_atomically


def write_reproduction(records: Sequence[Record], path: str | Path, *, root: str | Path) -> list[str]:
    """Write the page to `path`, and say what it leads with; rescaled nets are looked for under `root`.

    That is the folder the records came from.
    """
    from creditscope.paper.published.page import render_page
    from creditscope.paper.studies import find_wanted
    from creditscope.paper.studies.rescaling import measure_rescaled, rescaling

    try:
        wanted = find_wanted(rescaling("paper"), records)
        derived = measure_rescaled(wanted, Path(root), measure=False, problems=[])
    except CreditscopeError:
        derived = []
    page, lead = render_page(records, derived)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), page)
    return lead
