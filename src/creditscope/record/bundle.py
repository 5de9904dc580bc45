"""A bundle to be shipped: the records of many runs as one compressed file of lines, rounded and thinned.

The first line is a header, each further one a run: spec, provenance, snapshots. Weights are not in it.
"""

import json
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.record.files import (
    LONGEST_LINE,
    check,
    digest,
    digest_value,
    first_words,
    open_regular,
    parse,
    printable,
)
from creditscope.record.schema import SCHEMA_VERSION, Count, Provenance, Snapshot, check_whole
from creditscope.record.spec import RunSpec
from creditscope.record.store import Record, Seal, StoredSnapshots, as_plain, broken_seal, check_version, share_facts

SUFFIX = ".jsonl.xz"
FORMAT = "creditscope bundle"
EVERY_EPOCH = (42, 123, 456)
"""Seeds of which all snapshots are kept."""
DIGITS = 6
"""Significant digits that are kept."""
LEAST_UNPACKED, MOST_GROWTH = 2**22, 200
"""A bundle unpacks to no more bytes than the first, or so many times its own; ours grow tenfold. What is more is none
of ours, so that a small file cannot fill the memory."""
MOST_MEMORY = 2**27
"""Bytes that unpacking itself may take."""
MOST_REFUSED = 100
"""Lines of a bundle that are named one by one; then it is given up."""
SEAL = b',"seal":"'
"""Before the digest at the end of a bundle's line."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a bundle; `runs` is the number of lines that follow."""

    format: str
    schema_version: int
    runs: Count
    digits: Count
    every_epoch: tuple[int, ...]
    seal: str = ""
    """Digest of the rest and of the names of all runs."""


@dataclass(frozen=True, kw_only=True)
class BundledRun:
    """A further line: one run by its name, which has the hash of its spec."""

    run: str
    left_out: Count
    """Snapshots that were thinned out, by this bundle or one that the run was packed in before."""
    spec: RunSpec
    provenance: Provenance
    snapshots: tuple[Any, ...]
    """Not checked with the line, but when they are asked for."""
    seal: str = ""
    """Digest of the line without it; it ends the line."""


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
    header["seal"] = _digest_header(header, [record.name for record in records])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with lzma.open(part, "wt", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(header) + "\n")
        for record in records:
            text = json.dumps(_line(record), allow_nan=False, separators=(",", ":"))
            file.write(f'{text[:-1]}{SEAL.decode()}{digest(text.encode())}"}}\n')
    os.replace(part, path)
    return path.stat().st_size


def _is_sealed(header: Header, found: dict[str, Record]) -> bool:
    return bool(header.seal) or any(record.seal == "fits" for record in found.values())


def _digest_header(header: dict[str, Any], names: Sequence[str]) -> str:
    return digest_value([{name: value for name, value in header.items() if name != "seal"}, *names])


def _line(record: Record) -> dict[str, Any]:
    assert record.spec is not None
    kept, provenance = thin(record), as_plain(record.provenance)
    del provenance["seal"]  # of files that are not shipped
    return {
        "run": record.spec.name(),
        "left_out": record.left_out + len(record.snapshots) - len(kept),
        "spec": asdict(record.spec),
        "provenance": rounded(provenance, DIGITS),
        "snapshots": [rounded(as_plain(s), DIGITS) for s in kept],
    }


def read_bundle(
    path: Path, *, problems: list[str] | None = None, unsealed: bool = False, packed: bool = False
) -> list[Record]:
    """The runs of a bundle, with its path as theirs; lines that cannot be used are named in `problems`, or raised.

    A file that was cut short gives the runs before the cut; one whose checksum is wrong gives none, because nobody
    knows which of its numbers are. `unsealed`: runs that do not fit their digests are read all the same. `packed`:
    snapshots stay compressed until they are asked for.
    """
    found: dict[str, Record] = {}
    refused: list[str] = []
    try:
        lines = _lines(path)
        raw, header = _read_header(next(lines, b""))
        came = 0
        for came, text in enumerate(lines, start=1):
            if came > header.runs or len(refused) == MOST_REFUSED:
                break
            try:
                record = _read_line(path, came, text, sealed=bool(header.seal), unsealed=unsealed, packed=packed)
                if record.name in found:
                    raise CreditscopeError(
                        f"Record {record.name} in bundle {path.name} cannot be read: Expected it once, but got two."
                    )
                found[record.name] = record
            except CreditscopeError as error:
                refused.append(str(error))
        if came != header.runs:
            got = f"{came}" if came < header.runs else "more"
            got += f", the rest not read after {MOST_REFUSED} that cannot be" * (len(refused) == MOST_REFUSED)
            refused.append(f"Bundle {path} is not whole: Expected {header.runs} runs, but got {got}.")
        elif not refused and _is_sealed(header, found) and header.seal != _digest_header(raw, [*found]):
            refused.append(f"Bundle {path} is not whole: Expected the header and runs it was written with.")
    except EOFError:
        refused.append(f"Bundle {path} is cut short: the {len(found)} runs before the cut are read.")
    except (OSError, lzma.LZMAError, CreditscopeError) as error:
        found, refused = {}, [f"Bundle {path} cannot be read: {first_words(error)}."]
    if refused and problems is None:
        raise CreditscopeError(refused[0])
    if problems is not None:
        problems += refused
    return list(found.values())


def _lines(path: Path) -> Iterator[bytes]:
    """Line by line, each of a length that a run can have, and all together of one that a bundle can."""
    with open_regular(path) as file:
        left = max(LEAST_UNPACKED, MOST_GROWTH * os.fstat(file.fileno()).st_size)
        unpack = lzma.LZMADecompressor(memlimit=MOST_MEMORY)
        line: list[bytes] = []
        while not unpack.eof:
            packed = file.read(2**16) if unpack.needs_input else b""
            if unpack.needs_input and not packed:
                raise EOFError
            part = unpack.decompress(packed, 2**20)
            left -= len(part)
            if left < 0 or sum(map(len, line)) > LONGEST_LINE:
                raise CreditscopeError(
                    f"Expected lines of less than {LONGEST_LINE} bytes, and at most {MOST_GROWTH} times the file "
                    "when it is unpacked, but got more."
                )
            *whole, rest = part.split(b"\n")
            for end in whole:
                yield b"".join([*line, end])
                line = []
            line.append(rest)
        if any(line):
            yield b"".join(line)


def _read_header(text: bytes) -> tuple[dict[str, Any], Header]:
    if not text:
        raise CreditscopeError("Expected a header, but got an empty file.")
    try:
        raw = parse(text)
        header: Header = check(Header, raw)
    except ValueError as error:
        raise CreditscopeError(f"Expected the header of a bundle, but got: {first_words(error)}.") from error
    if header.format != FORMAT:
        raise CreditscopeError(f"Expected format {FORMAT!r}, but got {header.format[:40]!r}.")
    check_version(header.schema_version)
    return raw, header


def _read_line(path: Path, number: int, text: bytes, *, sealed: bool, unsealed: bool, packed: bool) -> Record:
    """`sealed`: the bundle is, and so has to be each of its lines. `packed`: what fits its digest is checked later."""
    name = f"Run {number} of"
    try:
        raw = parse(text)
        if isinstance(raw, dict) and isinstance(raw.get("run"), str):
            name = f"Record {printable(raw['run'][:120])} in"
        line: BundledRun = check(BundledRun, raw)
        check_version(line.provenance.schema_version)
        seal = _seal_of(text, line.seal, sealed)
        snapshots = () if packed and seal == "fits" else _snapshots(line)
        if packed:
            kept = zlib.compress(text, 1)
            snapshots = StoredSnapshots(len(line.snapshots), lambda: _unpack(kept, f"{name} bundle {path.name}"))
        if line.run != line.spec.name():
            digest = line.spec.digest()
            raise CreditscopeError(f"Expected a spec with the hash in its name, but got {digest}. It was edited.")
        if not line.snapshots or line.provenance.status == "running":
            raise CreditscopeError("Expected a finished run, but got one that is not.")
        if seal == "broken" and not unsealed:
            raise broken_seal("a line")
    except ValueError as error:
        raise CreditscopeError(f"{name} bundle {path.name} cannot be read: {first_words(error)}.") from error
    return Record(line.spec, share_facts(line.provenance), snapshots, path, left_out=line.left_out, seal=seal)


def _snapshots(line: BundledRun) -> tuple[Snapshot, ...]:
    found = tuple(check(Snapshot, raw) for raw in line.snapshots)
    check_whole(line.spec, line.provenance, found, left_out=line.left_out)
    return found


def _unpack(kept: bytes, name: str) -> tuple[Snapshot, ...]:
    try:
        return _snapshots(check(BundledRun, parse(zlib.decompress(kept))))
    except ValueError as error:
        raise CreditscopeError(f"{name} cannot be read: {first_words(error)}.") from error


def _seal_of(text: bytes, stated: str, sealed: bool) -> Seal:
    if not stated and not sealed:
        return "none"
    rest, _, seal = text.rpartition(SEAL)
    return "fits" if seal == f'{stated}"}}'.encode() and digest(rest + b"}") == stated else "broken"
