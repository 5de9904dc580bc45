"""Read and write records: one folder a run, atomic writes, a lock while it is being made."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from creditscope.errors import CreditscopeError
from creditscope.record.files import (
    LARGEST_FILE,
    check,
    digest,
    digest_file,
    digest_value,
    first_words,
    parse,
    read_file,
    split_lines,
)
from creditscope.record.locks import LOCK, locked
from creditscope.record.schema import OF_WATCHED, READABLE, Facts, Provenance, Snapshot, check_whole
from creditscope.record.spec import LATER_FIELDS, RunSpec

SPEC, SNAPSHOTS, PROVENANCE = FILES = ("spec.json", "snapshots.jsonl", "provenance.json")
WEIGHTS, CHECKPOINT = "weights.safetensors", "checkpoint.safetensors"
FAILURE = "failure.txt"
ASIDE = "damaged-"
"""Begins the names of folders that were set aside; they are not read."""
SMALL = 2**24
"""Bytes that a file other than snapshots may have."""
Seal = Literal["fits", "none", "broken"]
BEFORE = ".before"
"""Ends the names of what a finished record held while its run is trained anew; records are not read by it."""
WATCHED = "watch"
"""The engine of a watched model, which has no spec."""


@dataclass(frozen=True)
class Record:
    """One run as stored; `spec` is None for a watched model.

    >>> import creditscope as cs
    >>> record = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick").records[0]
    >>> record.finished, record.last.epoch, record.facts.taps
    (True, 1, ('stem', 'blocks.0'))
    """

    spec: RunSpec | None
    provenance: Provenance
    snapshots: Sequence[Snapshot]
    """In memory, or (`StoredSnapshots`) where they are stored."""
    path: Path | None = None
    left_out: int = field(default=0, kw_only=True)
    """Snapshots that were thinned out of it when it was bundled."""
    seal: Seal = field(default="fits", kw_only=True, compare=False, repr=False)
    """Whether what was read fits its digests, has none (of an earlier version), or was read although it does not."""

    @property
    def facts(self) -> Facts:
        """What holds throughout the run."""
        return self.provenance.facts

    @property
    def last(self) -> Snapshot:
        """The latest snapshot."""
        if not self.snapshots:
            raise CreditscopeError(f"Expected at least one snapshot in {self.path or 'the record'}, but got none.")
        return self.snapshots[-1]

    @property
    def name(self) -> str:
        """The run's name, as its folder has it; a watched model has that of its folder, once it is saved."""
        return self.spec.name() if self.spec else self.path.name if self.path else "watched model"

    @property
    def finished(self) -> bool:
        """Whether the run came to its end, well or diverged."""
        return self.provenance.status != "running"


class StoredSnapshots(Sequence[Snapshot]):
    """Snapshots that stay where they are stored: `read` gives all of them, and is called whenever one is asked for."""

    def __init__(self, length: int, read: Callable[[], tuple[Snapshot, ...]]):
        self.length = length
        self.read = read

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: Any) -> Any:
        return self.read()[at]

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self.read())


def in_memory(record: Record) -> Record:
    """The same record with all its snapshots read; one that has them already as it is."""
    stored = record.snapshots
    return replace(record, snapshots=stored.read()) if isinstance(stored, StoredSnapshots) else record


def run_folder(root: Path, spec: RunSpec) -> Path:
    """Where a run's record lies under the record root."""
    return root / spec.name()


class RecordWriter:
    """Writes one run's record; holds the run's lock while it is `open`."""

    def __init__(self, root: Path, spec: RunSpec):
        self.spec = spec
        self.folder = run_folder(root, spec)

    @contextmanager
    def open(self) -> Iterator["RecordWriter"]:
        """Create the folder and take the lock; refuse a folder of another spec."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / LOCK):
            if holds_other_spec(self.folder, self.spec):
                raise CreditscopeError(
                    f"Expected {self.folder} to be empty or to hold this run, but it holds a record of "
                    "another spec. Choose another output folder; nothing was overwritten."
                )
            (self.folder / FAILURE).unlink(missing_ok=True)
            yield self
        with suppress(OSError):  # nothing was written: the run was found in a bundle
            self.folder.rmdir()

    def begin(self) -> None:
        """Start the record anew; one that was finished is not, from here on, but is kept beside until this one is."""
        stored = self.read_provenance()
        if stored is not None and stored.status != "running":
            for name in FILES:
                if (self.folder / name).exists():
                    write_atomically(self.folder / f"{name}{BEFORE}", (self.folder / name).read_text(encoding="utf-8"))
        (self.folder / PROVENANCE).unlink(missing_ok=True)
        write_atomically(self.folder / SPEC, _dump(self.spec) + "\n")
        (self.folder / SNAPSHOTS).write_text("")

    def forget_before(self) -> None:
        """Remove what the record held before it was begun anew: the new one is finished."""
        for name in FILES:
            (self.folder / f"{name}{BEFORE}").unlink(missing_ok=True)

    def cut(self, lines: int) -> None:
        """Keep the first lines, those that the checkpoint knows of; what came after is measured again."""
        path = self.folder / SNAPSHOTS
        kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:lines]
        if len(kept) < lines or not all(line.endswith("\n") for line in kept):
            raise CreditscopeError(f"Expected {lines} whole lines in {path}, but got {len(kept)}.")
        write_atomically(path, "".join(kept))

    def read_provenance(self) -> Provenance | None:
        """What is on disk of it, if it can be read."""
        try:
            return check(Provenance, parse(read_file(self.folder / PROVENANCE, most=SMALL)))
        except (OSError, ValueError):
            return None

    def append(self, snapshot: Snapshot) -> None:
        """Add one line; flushed to disk before returning."""
        with open(self.folder / SNAPSHOTS, "a", encoding="utf-8") as file:
            file.write(_dump(snapshot) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def write_provenance(self, provenance: Provenance) -> None:
        """Where the record comes from; that of a finished run closes it, with digests of all its files."""
        _write_provenance(self.folder, provenance)


def keep_failure(root: Path, spec: RunSpec, reason: str) -> None:
    """Leave in a run's folder, if it has one, why it failed: the last line of the reason, until it is tried again."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    with suppress(OSError):  # a full disk, say, which may be the reason
        if lines and run_folder(root, spec).is_dir():
            write_atomically(run_folder(root, spec) / FAILURE, lines[-1] + "\n")


def write_watched(folder: Path, record: Record) -> None:
    """Write the record of a watched model, which has no spec; refuses a folder that holds a run."""
    stored = folder / SPEC
    if stored.exists() and read_file(stored, most=SMALL).strip() != b"null":
        raise CreditscopeError(
            f"Expected {folder} to be empty or to hold a watched model, but it holds a run. Choose another folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROVENANCE).unlink(missing_ok=True)  # what is half replaced is not finished
    write_atomically(folder / SNAPSHOTS, "".join(f"{_dump(snapshot)}\n" for snapshot in record.snapshots))
    write_atomically(stored, "null\n")
    _write_provenance(folder, record.provenance)


def write_atomically(path: Path, text: str) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never half."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _write_provenance(folder: Path, provenance: Provenance) -> None:
    plain = {name: value for name, value in as_plain(provenance).items() if name != "seal"}
    if provenance.status != "running":
        sealed = [folder / name for name in (SPEC, SNAPSHOTS, WEIGHTS)]
        seal = {path.name: digest_file(path) for path in sealed if path.exists()}
        plain["seal"] = seal | {PROVENANCE: digest_value(plain)}
    write_atomically(folder / PROVENANCE, json.dumps(plain, indent=1) + "\n")


def as_plain(value: Any) -> dict[str, Any]:
    """A record's part as JSON has it; what only a watched model has is left out where it is empty."""
    return asdict(value, dict_factory=_without_empty)


def _without_empty(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value not in (None, ()) or name not in OF_WATCHED}


def _dump(value: Any) -> str:
    return json.dumps(as_plain(value), allow_nan=False, separators=(",", ":"))


def check_version(version: Any) -> None:
    """Refuse a schema that this version cannot read."""
    if version not in READABLE:
        raise CreditscopeError(
            f"Expected schema version {' or '.join(map(str, READABLE))}, but got {version}. "
            "Read it with the creditscope that wrote it."
        )


def broken_seal(what: str) -> CreditscopeError:
    """What is said of a record that was altered after it was written."""
    return CreditscopeError(
        f"Expected {what} as it was written, but it does not fit its digest. Restore it, or read it all the same by "
        "--unsealed (in Python unsealed=True)"
    )


def read_record(folder: Path, *, unsealed: bool = False) -> Record:
    """One record; a folder that is not a whole, valid record raises with what is wrong.

    `unsealed`: one that does not fit its digests is read all the same.
    """
    return in_memory(open_record(folder, unsealed=unsealed))


def open_record(folder: Path, *, unsealed: bool = False) -> Record:
    """The same, but its snapshots are read when they are asked for."""
    record = open_files(folder.name, lambda name, most: read_file(folder / name, most=most), folder, unsealed=unsealed)
    if record.finished:
        _tidy(folder)
    return record


def open_files(name: str, read: Callable[[str, int], bytes], path: Path, *, unsealed: bool) -> Record:
    """A record by its run's name and a function that gives a file of it, of so many bytes at most.

    Digests are compared at once. Snapshots that fit theirs are as they were written, and are checked when they are
    read; others are checked here.
    """

    def snapshots() -> tuple[Snapshot, ...]:
        with _named(name):
            content = read(SNAPSHOTS, LARGEST_FILE)
            if digest(content) != found[SNAPSHOTS]:
                raise CreditscopeError(f"Expected {SNAPSHOTS} as it was a moment ago, but it has changed.")
            kept = tuple(check(Snapshot, parse(line)) for line in split_lines(content))
            check_whole(spec, provenance, kept)
            return kept

    with _named(name):
        asked = read(SPEC, SMALL)
        spec = check(RunSpec | None, parse(asked))  # null: of a watched model
        raw = parse(read(PROVENANCE, SMALL))
        if not isinstance(raw, dict):
            raise CreditscopeError(f"Expected an object in {PROVENANCE}, but got {type(raw).__name__}.")
        check_version(raw.get("schema_version"))
        provenance = share_facts(check(Provenance, raw))
        content = read(SNAPSHOTS, LARGEST_FILE)
        own = {name: value for name, value in raw.items() if name != "seal"}
        found = {SPEC: digest(asked), SNAPSHOTS: digest(content), PROVENANCE: digest_value(own)}
        if (spec is None) != (provenance.engine == WATCHED):
            raise CreditscopeError("Expected a spec, or null for a watched model, but got the other.")
        stored = StoredSnapshots(content.count(b"\n") + (content[-1:] not in (b"", b"\n")), snapshots)
        seal = _compare(provenance.seal, found)
    if seal != "fits":
        stored.read()
    with _named(name):
        if spec is not None and not name.endswith(spec.digest()):
            raise CreditscopeError(
                f"Expected a spec with the hash in its name, but got {spec.digest()}. It was edited or renamed."
            )
        if seal == "broken" and not unsealed:
            raise broken_seal(" and ".join(_altered(provenance.seal, found)))
    return Record(spec, provenance, stored, path, seal=seal)


def share_facts(provenance: Provenance) -> Provenance:
    """The same, with facts that are the same object for all runs that share them: they are most of it."""
    return replace(provenance, facts=_known(provenance.facts))


@lru_cache(maxsize=1024)
def _known(facts: Facts) -> Facts:
    return facts


@contextmanager
def _named(name: str) -> Iterator[None]:
    """What is wrong inside is wrong with this record."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise CreditscopeError(f"Record {name} cannot be read: {first_words(error)}.") from error


def _compare(stated: dict[str, str] | None, found: dict[str, str]) -> Seal:
    if stated is None:
        return "none"
    return "broken" if _altered(stated, found) else "fits"


def _altered(stated: dict[str, str] | None, found: dict[str, str]) -> list[str]:
    return [name for name, value in found.items() if (stated or {}).get(name) != value]


def check_weights(folder: Path) -> None:
    """Refuse weights that were altered since the record was finished; those of an earlier version have no digest."""
    stated = raw_provenance(folder).get("seal")
    if isinstance(stated, dict) and stated.get(WEIGHTS) != digest_file(folder / WEIGHTS):
        raise broken_seal(f"{WEIGHTS} in {folder.name}")


def _tidy(folder: Path) -> None:
    """Remove what a crash at the very end left beside a finished record, unless a writer lives."""
    left = [folder / name for name in (CHECKPOINT, LOCK, *(f"{name}{BEFORE}" for name in FILES))]
    if os.name != "posix" or not any(path.exists() for path in left):
        return  # nothing to remove, or no lock that would say whether a writer lives
    with suppress(OSError, CreditscopeError), locked(folder / LOCK):
        for path in left:
            path.unlink(missing_ok=True)


def is_unfinished(folder: Path) -> bool:
    """Whether the record itself says that its run has not come to its end, or that is yet to be said."""
    return not (folder / PROVENANCE).exists() or raw_provenance(folder).get("status") == "running"


def raw_provenance(folder: Path) -> dict[str, Any]:
    """Unchecked; empty if it cannot be read."""
    try:
        raw = parse(read_file(folder / PROVENANCE, most=SMALL))
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}


def holds_other_spec(folder: Path, spec: RunSpec) -> bool:
    """Not if it holds none that can be read."""
    try:
        stored = parse(read_file(folder / SPEC, most=SMALL))
        return (LATER_FIELDS | stored if isinstance(stored, dict) else stored) != asdict(spec)
    except (OSError, ValueError):
        return False
