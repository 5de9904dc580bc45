"""Read and write records: one folder a run, atomic writes, a lock while it is being made."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

from creditscope.errors import CreditscopeError
from creditscope.record.files import check, digest, digest_file, digest_value, first_words, parse, read_file, read_lines
from creditscope.record.schema import DESCENT_TURNS, READABLE, Facts, Provenance, Snapshot, check_whole
from creditscope.record.spec import LATER_FIELDS, RunSpec

SPEC, SNAPSHOTS, PROVENANCE = FILES = ("spec.json", "snapshots.jsonl", "provenance.json")
WEIGHTS, CHECKPOINT = "weights.safetensors", "checkpoint.safetensors"
LOCK, FAILURE = "lock", "failure.txt"
ASIDE = "damaged-"
"""Begins the names of folders that were set aside; they are not read."""
SMALL = 2**24
"""Bytes that a file other than snapshots may have."""
Seal = Literal["fits", "none", "broken"]
BEFORE = ".before"
"""Ends the names of what a finished record held while its run is trained anew; records are not read by it."""
BUSY = "another process is writing it"
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
"""What file systems without locks say."""
WATCHED = "watch"
"""The engine of a watched model, which has no spec."""
AT_THE_END = ("null_q99", "stage_cos", "rewind")
"""Per-tap fields of a last snapshot at any tier; what could not be measured is a series of None, and not empty."""


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
    snapshots: tuple[Snapshot, ...]
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


def lacks(record: Record) -> tuple[str, ...]:
    """Fields that its tier asks for at the end of a run by now, and a record from before lacks: drawn, but not kept.

    None of one that diverged. Of frozen blocks only the accuracy is asked at tier quick.
    """
    if record.spec is None or record.provenance.status != "complete":
        return ()
    return _lacking(record.spec, vars(record.last.taps), record.last.descent_turns)


def _lacking(spec: RunSpec, taps: Mapping[str, Any], turns: int) -> tuple[str, ...]:
    if spec.frozen and spec.tier == "quick":
        return ()
    found = tuple(name for name in AT_THE_END if not taps.get(name))
    measured = spec.tier != "quick" and any(value is not None for value in taps.get("descent", ()))
    return (*found, "descent_turns") if measured and turns < DESCENT_TURNS else found


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
        with _locked(self.folder / LOCK):
            if _holds_other_spec(self.folder, self.spec):
                raise CreditscopeError(
                    f"Expected {self.folder} to be empty or to hold this run, but it holds a record of "
                    "another spec. Choose another output folder; nothing was overwritten."
                )
            (self.folder / FAILURE).unlink(missing_ok=True)
            yield self

    def finished_meanwhile(self) -> str | None:
        """How another process ended this very run while we waited for it, if one did and its record lacks nothing."""
        try:
            record = read_record(self.folder)
        except CreditscopeError:
            return None
        return record.provenance.status if record.finished and not lacks(record) else None

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
    plain = {name: value for name, value in asdict(provenance).items() if name != "seal"}
    if provenance.status != "running":
        sealed = [folder / name for name in (SPEC, SNAPSHOTS, WEIGHTS)]
        seal = {path.name: digest_file(path) for path in sealed if path.exists()}
        plain["seal"] = seal | {PROVENANCE: digest_value(plain)}
    write_atomically(folder / PROVENANCE, json.dumps(plain, indent=1) + "\n")


def _dump(value: Any) -> str:
    return json.dumps(asdict(value), allow_nan=False, separators=(",", ":"))


class BusyError(CreditscopeError):
    """A run that another process is writing."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """An advisory lock that the system releases when the process ends, however it ends; its file goes with it."""
    if fcntl is None:  # two writers are then the user's to avoid
        yield
        return
    while True:
        with open(path, "w") as file:
            if not try_lock(file):
                raise BusyError(
                    f"Expected run {path.parent.name} to be free, but {BUSY}. "
                    "Wait for it or choose another output folder."
                )
            if not _is_at(file, path):
                continue  # another process removed it between our opening it and our locking it
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def try_lock(file: IO[str]) -> bool:
    """Lock an open file, unless another process has; file systems without locks let everybody."""
    try:
        has_locks(file)
    except BlockingIOError:
        return False
    return True


def has_locks(file: IO[Any]) -> bool:
    """Lock an open file; False on systems, and file systems, that cannot."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


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
    try:
        asked = read_file(folder / SPEC, most=SMALL)
        spec = check(RunSpec | None, parse(asked))  # null: of a watched model
        raw = parse(read_file(folder / PROVENANCE, most=SMALL))
        if not isinstance(raw, dict):
            raise CreditscopeError(f"Expected an object in {PROVENANCE}, but got {type(raw).__name__}.")
        check_version(raw.get("schema_version"))
        provenance: Provenance = check(Provenance, raw)
        lines = list(read_lines(folder / SNAPSHOTS))
        snapshots = tuple(check(Snapshot, parse(line)) for line in lines)
        if (spec is None) != (provenance.engine == WATCHED):
            raise CreditscopeError("Expected a spec, or null for a watched model, but got the other.")
        check_whole(spec, provenance, snapshots)
        if spec is not None and not folder.name.endswith(spec.digest()):
            raise CreditscopeError(
                f"Expected a spec with the hash in its name, but got {spec.digest()}. It was edited or renamed."
            )
        own = {name: value for name, value in raw.items() if name != "seal"}
        found = {SPEC: digest(asked), SNAPSHOTS: digest(b"".join(lines)), PROVENANCE: digest_value(own)}
        seal = _compare(provenance.seal, found, unsealed=unsealed)
    except (OSError, ValueError) as error:
        raise CreditscopeError(f"Record {folder.name} cannot be read: {first_words(error)}.") from error
    record = Record(spec, provenance, snapshots, folder, seal=seal)
    if record.finished:
        _tidy(folder)
    return record


def _compare(stated: dict[str, str] | None, found: dict[str, str], *, unsealed: bool) -> Seal:
    if stated is None:
        return "none"
    altered = [name for name, value in found.items() if stated.get(name) != value]
    if altered and not unsealed:
        raise broken_seal(" and ".join(altered))
    return "broken" if altered else "fits"


def check_weights(folder: Path) -> None:
    """Refuse weights that were altered since the record was finished; those of an earlier version have no digest."""
    stated = _raw_provenance(folder).get("seal")
    if isinstance(stated, dict) and stated.get(WEIGHTS) != digest_file(folder / WEIGHTS):
        raise broken_seal(f"{WEIGHTS} in {folder.name}")


def _tidy(folder: Path) -> None:
    """Remove what a crash at the very end left beside a finished record, unless a writer lives."""
    left = [folder / name for name in (CHECKPOINT, LOCK, *(f"{name}{BEFORE}" for name in FILES))]
    if os.name != "posix" or not any(path.exists() for path in left):
        return  # nothing to remove, or no lock that would say whether a writer lives
    with suppress(OSError, CreditscopeError), _locked(folder / LOCK):
        for path in left:
            path.unlink(missing_ok=True)


def stored_record(root: Path, spec: RunSpec, *, problems: list[str], whole: bool = False) -> Record | None:
    """The finished record of this very run, if there is one; a damaged one is set aside and named.

    `whole`: only if it holds all that its tier measures by now.
    """
    folder = run_folder(root, spec)
    if is_unfinished(folder):
        return None  # the writer goes on from its checkpoint, or starts anew
    try:
        record = read_record(folder)
    except CreditscopeError as error:
        if _holds_other_spec(folder, spec) or is_being_written(folder):
            return None  # the writer will refuse it
        aside = next(p for i in range(10_000) if not (p := folder.with_name(f"{ASIDE}{i}-{folder.name}")).exists())
        os.replace(folder, aside)
        with suppress(FileNotFoundError):
            (aside / SPEC).rename(aside / f"{SPEC}.damaged")
        problems.append(f"{error} Set aside as {aside.name}.")
        return None
    return record if record.finished and not (whole and lacks(record)) else None


def finished(root: Path, spec: RunSpec) -> str:
    """How the run ended, as its provenance says and nothing else is read for: complete, diverged, or "" if it did not;
    "lacking" if its last snapshot has not all that its tier measures by now."""
    folder = run_folder(root, spec)
    status = _raw_provenance(folder).get("status", "running")
    if status == "running" or _holds_other_spec(folder, spec):
        return ""
    with suppress(OSError, ValueError, AttributeError, TypeError):  # who reads the record will find what is wrong
        last = parse(_last_line(folder / SNAPSHOTS))
        if status == "complete" and _lacking(spec, last["taps"], last.get("descent_turns", 0)):
            return "lacking"
    return status


def ran_for(root: Path, spec: RunSpec) -> float:
    """Seconds that a finished run took, as its provenance says; 0 if it does not."""
    seconds = _raw_provenance(run_folder(root, spec)).get("seconds")
    return seconds if isinstance(seconds, float) else 0.0


def _last_line(path: Path) -> bytes:
    with open(path, "rb") as file:
        size = step = file.seek(0, os.SEEK_END)
        step, tail = 2**14, b""
        while b"\n" not in tail[:-1] and len(tail) < size:
            file.seek(max(0, size - step))
            tail, step = file.read(), 4 * step
    return tail[:-1].rpartition(b"\n")[2]


def bring_home(root: Path, spec: RunSpec, files: Mapping[str, bytes], digests: Mapping[str, str], work: Path) -> None:
    """Store the files of a run that was trained elsewhere, all or none; a record that is finished here stays.

    `work` is a folder on the same file system to write beside.
    """
    altered = [name for name, content in files.items() if digest(content) != digests.get(name)]
    if altered or not {*FILES, WEIGHTS} <= files.keys():
        raise CreditscopeError(f"Expected the files of {spec.name()} as they were sent, but got others: {altered}.")
    folder, beside = run_folder(root, spec), work / spec.name()
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    for name, content in files.items():
        (beside / name).write_bytes(content)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / LOCK):
        if finished(root, spec) in ("complete", "diverged"):
            return
        os.replace(folder, work / f"{spec.name()}.old")
        os.replace(beside, folder)


def begun_by(root: Path, spec: RunSpec) -> str | None:
    """The engine that an unfinished run was begun with (loop or stacked), if it was begun."""
    raw = _raw_provenance(run_folder(root, spec))
    if raw.get("status") != "running":
        return None
    return "loop" if raw.get("engine") == "loop" else "stacked"


def is_unfinished(folder: Path) -> bool:
    """Whether the record itself says that its run has not come to its end, or that is yet to be said."""
    return not (folder / PROVENANCE).exists() or _raw_provenance(folder).get("status") == "running"


def _raw_provenance(folder: Path) -> dict[str, Any]:
    """Unchecked; empty if it cannot be read."""
    try:
        raw = parse(read_file(folder / PROVENANCE, most=SMALL))
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}


def is_being_written(folder: Path) -> bool:
    """Whether another process has its lock."""
    try:
        with _locked(folder / LOCK):
            return False
    except CreditscopeError:
        return True


def _holds_other_spec(folder: Path, spec: RunSpec) -> bool:
    """Not if it holds none that can be read."""
    try:
        stored = parse(read_file(folder / SPEC, most=SMALL))
        return (LATER_FIELDS | stored if isinstance(stored, dict) else stored) != asdict(spec)
    except (OSError, ValueError):
        return False
