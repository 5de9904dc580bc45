"""Find all records under a folder: folders of runs, and bundles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.record.bundle import SUFFIX, read_bundle
from creditscope.record.store import FAILURE, PROVENANCE, SPEC, Record, is_unfinished, read_record


@contextmanager
def collection_paused() -> Iterator[None]:
    """No search for cycles inside: records have none, and going through millions of numbers again and again costs
    more than reading them. It is switched on again after, if it was on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load_records(root: str | Path, *, problems: list[str] | None = None) -> list[Record]:
    """All finished records under a folder (or in a bundle), by name; runs that are not finished are left out.

    A record that cannot be read is an error. With a list as `problems` it is left out, too, and the list names all
    that is. A run that has a folder is read from there, whatever bundles hold of it.

    >>> import creditscope as cs
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> [record.spec.rule for record in cs.load_records("out/records", problems=[])]
    ['bp']
    """
    root = Path(root)
    if root.is_file() and root.name.endswith(SUFFIX):
        return read_bundle(root, problems=problems)
    if not root.is_dir():
        lacks = f"is a file, and no bundle of them (*{SUFFIX})" if root.exists() else "does not exist"
        raise CreditscopeError(
            f"Expected a folder of records, but {root} {lacks}. Train runs first, or name another folder."
        )
    with collection_paused():
        records = _load_folders(root, problems)
        known = {r.name for r in records}
        for path in sorted(root.rglob(f"*{SUFFIX}")):
            for record in read_bundle(path, problems=problems):
                if (name := record.name) not in known:
                    known.add(name)
                    records.append(record)
    return records


def _load_folders(root: Path, problems: list[str] | None) -> list[Record]:
    records = []
    for folder in sorted(path.parent for path in root.rglob(SPEC)):
        try:
            unfinished = not (folder / PROVENANCE).exists() or is_unfinished(folder)
            record = None if unfinished else read_record(folder)
        except CreditscopeError as error:
            if problems is None:
                raise
            problems.append(str(error))
            continue
        if record is not None and record.finished:
            records.append(record)
        elif problems is not None:
            problems.append(f"Record {folder.name} is incomplete: {_why_unfinished(folder)}")
    return records


def _why_unfinished(folder: Path) -> str:
    try:
        why = (folder / FAILURE).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return "its run did not finish. Run it again."
    return f"its run failed: {why.rstrip('.')}. Mend that and run it again, or delete its folder."
