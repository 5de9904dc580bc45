"""What is on record of a run that is asked for: whether it has ended, how, and with all that is measured by now."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.record.files import digest, parse
from creditscope.record.finished import bundled_record
from creditscope.record.locks import LOCK, is_being_written, locked
from creditscope.record.schema import DESCENT_TURNS
from creditscope.record.spec import RunSpec
from creditscope.record.store import (
    ASIDE,
    FILES,
    SNAPSHOTS,
    SPEC,
    WEIGHTS,
    Record,
    RecordWriter,
    holds_other_spec,
    is_unfinished,
    raw_provenance,
    read_record,
    run_folder,
)

AT_THE_END = ("null_q99", "stage_cos", "rewind")
"""Per-tap fields of a last snapshot at any tier; what could not be measured is a series of None, and not empty."""


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


def stored_record(root: Path, spec: RunSpec, *, problems: list[str], whole: bool = False) -> Record | None:
    """The finished record of this very run, if there is one; a damaged one is set aside and named.

    `whole`: only if it holds all that its tier measures by now.
    """
    folder = run_folder(root, spec)
    if not folder.exists():
        record = bundled_record(root, spec, problems=problems)
        return record if record and not (whole and lacks(record)) else None
    if is_unfinished(folder):
        return None  # the writer goes on from its checkpoint, or starts anew
    try:
        record = read_record(folder)
    except CreditscopeError as error:
        if holds_other_spec(folder, spec) or is_being_written(folder):
            return None  # the writer will refuse it
        aside = next(p for i in range(10_000) if not (p := folder.with_name(f"{ASIDE}{i}-{folder.name}")).exists())
        os.replace(folder, aside)
        with suppress(FileNotFoundError):
            (aside / SPEC).rename(aside / f"{SPEC}.damaged")
        problems.append(f"{error} Set aside as {aside.name}.")
        return None
    return record if record.finished and not (whole and lacks(record)) else None


def status_of(root: Path, spec: RunSpec, problems: list[str] | None = None) -> str:
    """How the run ended, as its provenance says and nothing else is read for: complete, diverged, or "" if it did not;
    "lacking" if its last snapshot has not all that its tier measures by now."""
    folder = run_folder(root, spec)
    if not folder.exists():
        record = bundled_record(root, spec, problems=[] if problems is None else problems)
        return "" if record is None else "lacking" if lacks(record) else record.provenance.status
    status = raw_provenance(folder).get("status", "running")
    if status == "running" or holds_other_spec(folder, spec):
        return ""
    with suppress(OSError, ValueError, AttributeError, TypeError):  # who reads the record will find what is wrong
        last = parse(_last_line(folder / SNAPSHOTS))
        if status == "complete" and _lacking(spec, last["taps"], last.get("descent_turns", 0)):
            return "lacking"
    return status


def ended_meanwhile(writer: RecordWriter) -> str:
    """How another process ended this very run while we waited for it; "" if none did, or its record lacks something."""
    try:
        record = read_record(writer.folder)
    except CreditscopeError:
        record = bundled_record(writer.folder.parent, writer.spec, problems=[])
    return record.provenance.status if record and record.finished and not lacks(record) else ""


def ran_for(root: Path, spec: RunSpec) -> float:
    """Seconds that a finished run took, as its provenance says; 0 if it does not."""
    if not run_folder(root, spec).exists():
        record = bundled_record(root, spec, problems=[])
        return record.provenance.seconds or 0.0 if record else 0.0
    seconds = raw_provenance(run_folder(root, spec)).get("seconds")
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
    with locked(folder / LOCK):
        if status_of(root, spec) in ("complete", "diverged"):
            return
        os.replace(folder, work / f"{spec.name()}.old")
        os.replace(beside, folder)


def begun_by(root: Path, spec: RunSpec) -> str | None:
    """The engine that an unfinished run was begun with (loop or stacked), if it was begun."""
    raw = raw_provenance(run_folder(root, spec))
    if raw.get("status") != "running":
        return None
    return "loop" if raw.get("engine") == "loop" else "stacked"
