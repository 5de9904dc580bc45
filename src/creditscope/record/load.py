"""Find all records under a folder: folders of runs, and bundles."""

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.record.bundle import SUFFIX, read_bundle
from creditscope.record.files import printable, read_file
from creditscope.record.finished import RUNS_SUFFIX, read_runs
from creditscope.record.store import ASIDE, FAILURE, FILES, SMALL, SPEC, Record, is_unfinished, open_record, read_record
from creditscope.text import count

SUFFIXES = (SUFFIX, RUNS_SUFFIX)


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


def load_records(root: str | Path, *, problems: list[str] | None = None, unsealed: bool = False) -> list[Record]:
    """All finished records under a folder (or in a bundle), by name; runs that are not finished are left out.

    A record that cannot be read, or that was altered since it was written, is an error. With a list as `problems` it is
    left out, too, and the list names all that is. A run that has a folder is read from there, whatever bundles hold of
    it. `unsealed`: altered ones are read all the same.

    >>> import creditscope as cs
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> [record.spec.rule for record in cs.load_records("out/records", problems=[])]
    ['bp']
    """
    return _Loader(problems, unsealed).load(Path(root))


def open_records(root: str | Path, *, problems: list[str] | None = None, unsealed: bool = False) -> list[Record]:
    """The same, but their snapshots stay where they are stored, and are read whenever they are asked for.

    So that many runs fit into memory: specs and provenance are there at once.
    """
    return _Loader(problems, unsealed, stored=True).load(Path(root))


@dataclass(frozen=True)
class _Loader:
    """How records are read, and where what is wrong with them is named."""

    problems: list[str] | None
    unsealed: bool
    stored: bool = False
    """Whether snapshots stay where they are stored."""

    def load(self, root: Path) -> list[Record]:
        with collection_paused():
            if root.is_file() and root.name.endswith(SUFFIXES):
                records = self.bundle(root)
            elif root.is_dir():
                records = self.all(root)
            else:
                ends = " or ".join(f"*{suffix}" for suffix in SUFFIXES)
                lacks = f"is a file, and no bundle of them ({ends})" if root.exists() else "does not exist"
                raise CreditscopeError(
                    f"Expected a folder of records, but {root} {lacks}. Train runs first, or name another folder."
                )
        if self.problems is not None:
            self.problems.extend(seal_notes(records))
        return records

    def all(self, root: Path) -> list[Record]:
        folders, bundles = _find(root)
        records = [record for folder in folders if (record := self.folder(folder))]
        known = {r.name for r in records}
        for path in bundles:
            for record in self.bundle(path):
                if (name := record.name) not in known:
                    known.add(name)
                    records.append(record)
        return records

    def bundle(self, path: Path) -> list[Record]:
        read = read_runs if path.name.endswith(RUNS_SUFFIX) else read_bundle
        return read(path, problems=self.problems, unsealed=self.unsealed, packed=self.stored)

    def folder(self, folder: Path) -> Record | None:
        """None if its run is not finished, or if it cannot be read."""
        try:
            begun = (folder / SPEC).exists() and is_unfinished(folder)
            read = open_record if self.stored else read_record
            record = None if begun else read(folder, unsealed=self.unsealed)
        except CreditscopeError as error:
            if self.problems is None:
                raise
            self.problems.append(str(error))
            return None
        if record is not None and record.finished:
            return record
        if self.problems is not None:
            self.problems.append(f"Record {folder.name} is incomplete: {_why_unfinished(folder)}")
        return None


def seal_notes(records: Sequence[Record]) -> list[str]:
    """A word on records without digests, and one on those that were read although they do not fit theirs."""
    none, broken = ([r.name for r in records if r.seal == kind] for kind in ("none", "broken"))
    notes = []
    if none:
        notes.append(f"{count(len(none), 'record')} of an earlier version without digests: alterations would not show.")
    if broken:
        named = ", ".join(broken[:3]) + f" and {len(broken) - 3} more" * (len(broken) > 3)
        notes.append(f"{count(len(broken), 'record')} altered since written, and read all the same: {named}.")
    return notes


def _find(root: Path) -> tuple[list[Path], list[Path]]:
    """Folders that hold a record or part of one, and bundles; what was set aside, or is under way, is passed by."""
    folders, bundles = [], []
    for place, inside, files in os.walk(root):
        inside[:] = [name for name in inside if not name.startswith((ASIDE, "."))]
        folders += [Path(place)] if not {*FILES}.isdisjoint(files) else []
        bundles += [Path(place, name) for name in (*files, *inside) if name.endswith(SUFFIXES)]
    return sorted(folders), sorted(bundles)


def _why_unfinished(folder: Path) -> str:
    try:
        why = printable(" ".join(read_file(folder / FAILURE, most=SMALL).decode().split()))
    except (OSError, ValueError):
        return "its run was stopped or still goes on. The same command finishes it."
    return f"its run failed: {why.rstrip('.')}. Mend that and run it again, or delete its folder."
