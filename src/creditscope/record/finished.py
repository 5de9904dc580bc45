"""Finished runs that differ in their seed as one file, byte for byte: four inodes a run are too many for 10,000.

It is a zip of their folders (`unzip` gives them back): RUN/spec.json, RUN/snapshots.jsonl, RUN/provenance.json and
RUN/weights.safetensors. Each run's own digests seal it, as they do in a folder.
"""

import hashlib
import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from creditscope.errors import CreditscopeError
from creditscope.record.bundle import LEAST_UNPACKED, MOST_GROWTH
from creditscope.record.files import LARGEST_FILE, digest, digest_file, first_words, open_regular, printable, read_file
from creditscope.record.locks import LOCK, locked
from creditscope.record.spec import RunSpec
from creditscope.record.store import (
    FILES,
    WEIGHTS,
    Record,
    broken_seal,
    check_weights,
    in_memory,
    is_unfinished,
    open_files,
    open_record,
)

RUNS_SUFFIX = ".runs.zip"
MOST_FOLDERS = 1000
"""Of more runs those that are finished are bundled by themselves."""
LEAVING = ".packed-"
"""Begins the names of folders that are in a bundle and about to go; they are not read."""
LOCAL_HEADER = struct.Struct("<26xHH")
"""What stands before a file inside a zip: 30 bytes that end in the lengths of its name and of an extra field."""
Index = dict[str, dict[str, ZipInfo]]
"""Run → file → where it is."""


def runs_path(root: Path, spec: RunSpec) -> Path:
    """Where a run lies under the record root once it is bundled, with all that differ from it in their seed."""
    words = spec.name().rpartition("-s")[0]
    return root / f"{words}-{hashlib.sha256(spec.stack_key().encode()).hexdigest()[:12]}{RUNS_SUFFIX}"


def bundle_if_many(root: Path) -> list[Path]:
    """The same as `bundle_finished` where there are more folders than one should keep."""
    with suppress(FileNotFoundError), os.scandir(root) as entries:
        if sum(entry.is_dir() for entry in entries) > MOST_FOLDERS:
            return bundle_finished(root)
    return []


def bundle_finished(root: Path) -> list[Path]:
    """Move every finished run under `root` into the bundle of its kind; gives the bundles that were written.

    Left where they are: runs that are not finished, are being written, cannot be read or do not fit their digests, and
    folders that hold anything else. A bundle is written beside, read again and renamed before its folders go. Ended at
    any moment, every run is in its folder, in its bundle, or in both, which is read once.
    """
    try:
        with locked(root / f"{LEAVING}lock"):
            for left in root.glob(f"{LEAVING}*/"):
                shutil.rmtree(left, ignore_errors=True)
            kinds: dict[Path, list[Path]] = {}
            for folder in sorted(path for path in root.iterdir() if path.is_dir()):
                if spec := _finished_spec(folder):
                    kinds.setdefault(runs_path(root, spec), []).append(folder)
            return [path for path, folders in kinds.items() if _bundle(path, folders)]
    except CreditscopeError:
        return []  # another process is at it


def _finished_spec(folder: Path) -> RunSpec | None:
    """What was asked of a run that may be bundled."""
    if folder.name.startswith(LEAVING) or is_unfinished(folder):
        return None
    try:
        record = open_record(folder)
        names = {path.name for path in folder.iterdir()}
        if names > {*FILES}:
            check_weights(folder)
    except (CreditscopeError, OSError):
        return None
    return record.spec if record.spec and record.name == folder.name and names <= {*FILES, WEIGHTS} else None


def _bundle(path: Path, folders: list[Path]) -> bool:
    """Whether these folders went into the bundle; one that cannot be read is left as it is, and so are they."""
    part = path.with_name(f"{path.name}.part")
    try:
        before = {folder: _stamp(folder) for folder in folders}
        names = {folder.name for folder in folders}
        kept = {run: files for run, files in (_index(path) if path.exists() else {}).items() if run not in names}
        with open(part, "wb") as file, ZipFile(file, "w") as made:
            for run, name, info in ((run, *own) for run, files in kept.items() for own in files.items()):
                _add(made, f"{run}/{name}", [_content(path, info)])
            for source in (folder / name for folder in folders for name in sorted(before[folder])):
                _add(made, f"{source.parent.name}/{source.name}", _pieces(source))
        _synchronise(part)
        _compare(part, path, kept, folders)
    except (OSError, CreditscopeError):
        part.unlink(missing_ok=True)
        return False
    os.replace(part, path)
    _synchronise(path.parent)
    for folder in folders:
        with suppress(CreditscopeError, OSError), locked(folder / LOCK):
            if _stamp(folder) == before[folder]:
                folder.rename(leaving := folder.with_name(f"{LEAVING}{folder.name}"))
                shutil.rmtree(leaving)
    return True


def _stamp(folder: Path) -> dict[str, tuple[int, int]]:
    """By which it shows that a folder was written to."""
    found = {path.name: path.stat() for path in folder.iterdir() if path.name != LOCK}
    return {name: (about.st_size, about.st_mtime_ns) for name, about in found.items()}


def _add(made: ZipFile, name: str, pieces: Iterable[bytes]) -> None:
    """With one date for all, so that the same runs are the same bytes."""
    info = ZipInfo(name)
    info.compress_type = ZIP_STORED if name.endswith(WEIGHTS) else ZIP_DEFLATED
    with made.open(info, "w", force_zip64=name.endswith(WEIGHTS)) as target:
        for piece in pieces:
            target.write(piece)


def _pieces(path: Path) -> Iterator[bytes]:
    with open_regular(path) as file:
        while piece := file.read(2**20):
            yield piece


def _compare(part: Path, path: Path, kept: Index, folders: Iterable[Path]) -> None:
    """Refuse a bundle that does not hold what it was made of."""
    wanted = _digests(path, kept)
    wanted |= {(source.parent.name, source.name): digest_file(source) for f in folders for source in f.iterdir()}
    if _digests(part, _index(part)) != wanted:
        raise CreditscopeError(f"Expected {part.name} to hold the runs it was made of, but got others.")


def _digests(path: Path, index: Index) -> dict[tuple[str, str], str]:
    return {(run, name): digest(_content(path, i)) for run, files in index.items() for name, i in files.items()}


def _synchronise(path: Path) -> None:
    """Have the disk hold it, before what it replaces goes."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _index(path: Path) -> Index:
    """The runs of a bundle, each with its files."""
    about = path.stat()
    return _indexed(path, about.st_mtime_ns, about.st_size, about.st_ino)


@lru_cache(maxsize=1024)
def _indexed(path: Path, *_stamp: int) -> Index:
    found: Index = {}
    try:
        with open_regular(path) as file, ZipFile(file) as bundle:
            for info in bundle.infolist():
                run, _, name = info.filename.partition("/")
                found.setdefault(run, {})[name] = info
    except (BadZipFile, EOFError, ValueError, NotImplementedError, struct.error) as error:
        raise CreditscopeError(f"Bundle {path} cannot be read: {first_words(error)}.") from None
    return found


def _content(path: Path, info: ZipInfo, most: int = LARGEST_FILE) -> bytes:
    """One file of a bundle: without reading the list of all its files again."""
    size, packed = info.file_size, info.compress_size
    if size > most or size > max(LEAST_UNPACKED, MOST_GROWTH * packed):
        raise CreditscopeError(f"Expected {printable(info.filename)} to have at most {most} bytes, but got more.")
    try:
        with open_regular(path) as file:
            file.seek(info.header_offset)
            file.seek(sum(LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))), os.SEEK_CUR)
            content = file.read(packed)
        if info.compress_type != ZIP_STORED:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, size + 1)
    except (zlib.error, struct.error) as error:
        raise CreditscopeError(f"Expected {printable(info.filename)} to unpack, but got: {error}.") from None
    if len(content) != size or zlib.crc32(content) != info.CRC:
        raise CreditscopeError(f"Expected {printable(info.filename)} as it was packed, but it was altered.")
    return content


def read_runs(
    path: Path, *, problems: list[str] | None = None, unsealed: bool = False, packed: bool = False
) -> list[Record]:
    """The runs of a bundle, with its path as theirs; those that cannot be used are named in `problems`, or raised.

    `unsealed`: runs that do not fit their digests are read all the same. `packed`: snapshots are read when asked for.
    """
    records: list[Record] = []
    refused: list[str] = []
    try:
        index = _index(path)
    except (CreditscopeError, OSError) as error:
        index, refused = {}, [f"{error}" if f"{path}" in f"{error}" else f"Bundle {path} cannot be read: {error}."]
    for run in index:
        try:
            record = _open(path, run, unsealed=unsealed)
            records.append(record if packed else in_memory(record))
        except CreditscopeError as error:
            refused.append(f"{error} It is in bundle {path.name}.")
    if refused and problems is None:
        raise CreditscopeError(refused[0])
    if problems is not None:
        problems += refused
    return records


def _open(path: Path, run: str, *, unsealed: bool) -> Record:
    files = _index(path)[run]

    def read(name: str, most: int) -> bytes:
        if name not in files:
            raise CreditscopeError(f"Expected {name}, but it is not there.")
        return _content(path, files[name], most)

    record = open_files(printable(run), read, path, unsealed=unsealed)
    if not record.finished or record.spec is None:
        raise CreditscopeError(f"Record {record.name} cannot be read: Expected a finished run, but got another.")
    return record


def bundled_record(root: Path, spec: RunSpec, *, problems: list[str]) -> Record | None:
    """The record of this very run, if a bundle under the record root holds it; a damaged one is named."""
    path, run = runs_path(root, spec), spec.name()
    try:
        return in_memory(_open(path, run, unsealed=False)) if path.exists() and run in _index(path) else None
    except (CreditscopeError, OSError) as error:
        problems.append(f"{error} It is in bundle {path.name}.")
        return None


def bundled_names(root: Path) -> set[str]:
    """Names of all runs in bundles of a record root; of one that cannot be read, none."""
    found: set[str] = set()
    for path in root.glob(f"*{RUNS_SUFFIX}"):
        with suppress(CreditscopeError, OSError):
            found |= _index(path).keys()
    return found


def read_weights(record: Record, *, unsealed: bool = False) -> bytes | None:
    """The weights and feedback that a run ended with, as safetensors; None if they are not kept.

    Those that do not fit their digest are refused, unless `unsealed`.
    """
    path = record.path
    if path is not None and record.spec and not path.exists():  # its folder has gone into a bundle since
        path = runs_path(path.parent, record.spec)
    if path is None or not path.exists() or (path.is_dir() and not (path / WEIGHTS).exists()):
        return None
    if path.is_dir():
        if not unsealed:
            check_weights(path)
        return read_file(path / WEIGHTS)
    if not path.name.endswith(RUNS_SUFFIX) or not (info := _index(path).get(record.name, {}).get(WEIGHTS)):
        return None
    content = _content(path, info)
    if not unsealed and record.provenance.seal and record.provenance.seal.get(WEIGHTS) != digest(content):
        raise broken_seal(f"{WEIGHTS} of {record.name}")
    return content
