"""Find all records under a folder: folders of runs, and bundles.

A bundle is the records of many runs as one compressed file of lines, rounded and thinned, to be shipped. The first line
is a header, each further one a run: spec, provenance, snapshots. Weights are not in it.
"""

import gc
import json
import lzma
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from creditscope.errors import CreditscopeError
from creditscope.record.schema import SCHEMA_VERSION, Provenance, Snapshot, check_whole
from creditscope.record.spec import RunSpec
from creditscope.record.store import (
    FAILURE,
    SPEC,
    Record,
    adapter,
    check_version,
    first_words,
    is_unfinished,
    read_record,
)

SUFFIX = ".jsonl.xz"
FORMAT = "creditscope bundle"
EVERY_EPOCH = (42, 123, 456)
"""Seeds of which all snapshots are kept."""
DIGITS = 6
"""Significant digits that are kept."""
LONGEST_LINE = 2**26
"""Bytes of a line beyond which a file is no bundle of ours, so that a small file cannot fill the memory."""


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
            record = None if is_unfinished(folder) else read_record(folder)
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


@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a bundle; `runs` is the number of lines that follow."""

    format: str
    schema_version: int
    runs: int
    digits: int
    every_epoch: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BundledRun:
    """A further line: one run by its name, which has the hash of its spec."""

    __pydantic_config__: ClassVar[Any] = {"allow_inf_nan": False}

    run: str
    left_out: int
    """Snapshots that were thinned out, by this bundle or one that the run was packed in before."""
    spec: RunSpec
    provenance: Provenance
    snapshots: tuple[Snapshot, ...]


def is_kept(epoch: int) -> bool:
    """Whether a thinned run keeps an epoch: all to 16, every second to 32, every fourth to 64, and so on.

    >>> [epoch for epoch in range(14, 101) if is_kept(epoch)]
    [14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96]
    """
    while epoch > 16 and epoch % 2 == 0:
        epoch //= 2
    return epoch <= 16


def thin(record: Record) -> tuple[Snapshot, ...]:
    """The snapshots that are shipped: weights at the first, the last and powers of two, answers at the last only."""
    assert record.spec is not None
    *before, last = record.snapshots
    whole = record.spec.seed in EVERY_EPOCH
    kept = [replace(s, correct=None) for s in before if whole or is_kept(s.epoch)]
    bare = [s.epoch != before[0].epoch and s.epoch & (s.epoch - 1) != 0 for s in kept]
    return (*(replace(s, weights=None) if b else s for s, b in zip(kept, bare, strict=True)), last)


def rounded(value: Any, digits: int) -> Any:
    """Every float in nested containers to so many significant digits; what is not 0 does not become 0."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: rounded(v, digits) for name, v in value.items()}
    return [rounded(v, digits) for v in value] if isinstance(value, list | tuple) else value


def write_bundle(records: Sequence[Record], path: Path) -> int:
    """Write finished runs as one file, whole or not at all; returns its size in bytes. Specs are not rounded."""
    for record in records:
        if record.spec is None or not record.finished or not record.snapshots:
            raise CreditscopeError(f"Expected records of finished runs to bundle, but got {record.name}, which is not.")
    kind = {"format": FORMAT, "schema_version": SCHEMA_VERSION}
    header = kind | {"runs": len(records), "digits": DIGITS, "every_epoch": EVERY_EPOCH}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with lzma.open(part, "wt", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(header) + "\n")
        for record in records:
            file.write(json.dumps(_line(record), allow_nan=False, separators=(",", ":")) + "\n")
    os.replace(part, path)
    return path.stat().st_size


def _line(record: Record) -> dict[str, Any]:
    assert record.spec is not None
    kept = thin(record)
    return {
        "run": record.spec.name(),
        "left_out": record.left_out + len(record.snapshots) - len(kept),
        "spec": asdict(record.spec),
        "provenance": rounded(asdict(record.provenance), DIGITS),
        "snapshots": [rounded(asdict(s), DIGITS) for s in kept],
    }


def read_bundle(path: Path, *, problems: list[str] | None = None) -> list[Record]:
    """The runs of a bundle, with its path as theirs; lines that cannot be used are named in `problems`, or raised.

    A file that was cut short gives the runs before the cut; one whose checksum is wrong gives none, because nobody
    knows which of its numbers are.
    """
    found: list[Record] = []
    refused: list[str] = []
    try:
        lines = _lines(path)
        header = _read_header(next(lines, b""))
        for number, text in enumerate(lines, start=1):
            try:
                found.append(_read_line(path, number, text))
            except CreditscopeError as error:
                refused.append(str(error))
        if (came := len(found) + len(refused)) != header.runs:
            refused.append(f"Bundle {path} is not whole: Expected {header.runs} runs, but got {came}.")
    except EOFError:
        refused.append(f"Bundle {path} is cut short: the {len(found)} runs before the cut are read.")
    except (OSError, lzma.LZMAError, CreditscopeError) as error:
        found, refused = [], [f"Bundle {path} cannot be read: {first_words(error)}."]
    if refused and problems is None:
        raise CreditscopeError(refused[0])
    if problems is not None:
        problems += refused
    return found


def _lines(path: Path) -> Iterator[bytes]:
    """Line by line, each of a length that a run can have."""
    with lzma.open(path, "rb") as file:
        while line := file.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise CreditscopeError(f"Expected lines shorter than {LONGEST_LINE} bytes, but got a longer one.")
            yield line


def _read_header(text: bytes) -> Header:
    if not text:
        raise CreditscopeError("Expected a header, but got an empty file.")
    try:
        header = adapter(Header).validate_json(text)
    except ValueError as error:
        raise CreditscopeError(f"Expected the header of a bundle, but got: {first_words(error)}.") from error
    if header.format != FORMAT:
        raise CreditscopeError(f"Expected format {FORMAT!r}, but got {header.format[:40]!r}.")
    check_version(header.schema_version)
    return header


def _read_line(path: Path, number: int, text: bytes) -> Record:
    name = f"Run {number} of"
    try:
        line = adapter(BundledRun).validate_json(text, strict=True)
        name = f"Record {line.run[:120]} in"
        check_version(line.provenance.schema_version)
        check_whole(line.spec, line.provenance, line.snapshots)
        if line.run != line.spec.name():
            digest = line.spec.digest()
            raise CreditscopeError(f"Expected a spec with the hash in its name, but got {digest}. It was edited.")
        if not line.snapshots or line.provenance.status == "running":
            raise CreditscopeError("Expected a finished run, but got one that is not.")
    except ValueError as error:
        raise CreditscopeError(f"{name} bundle {path.name} cannot be read: {first_words(error)}.") from error
    return Record(line.spec, line.provenance, line.snapshots, path, left_out=line.left_out)
