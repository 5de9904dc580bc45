"""What studies took: runs, and the time of the workers that trained and measured them."""

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import creditscope
from creditscope.record import Record

LIBRARIES = ("torch", "numpy")


def worker_seconds(records: Sequence[Record]) -> float:
    """Seconds of all workers together; runs that were trained as one stack share theirs, which counts once."""
    stacks: dict[tuple, float] = {}
    for record in records:
        spec, provenance = record.spec, record.provenance
        if spec is not None:
            key = (spec.stack_key(), provenance.stack) if provenance.stack else (spec.digest(),)
            stacks[key] = max(stacks.get(key, 0.0), provenance.seconds)
    return round(sum(stacks.values()), 3)


def sum_up(by_study: Mapping[str, Sequence[Record]]) -> dict[str, dict[str, float]]:
    """Runs and worker seconds, study by study; then all together, where a run that several share counts once."""
    together = {id(record): record for records in by_study.values() for record in records}
    rows = {**by_study, "together": list(together.values())}
    return {name: {"runs": len(rs), "worker_seconds": worker_seconds(rs)} for name, rs in rows.items()}


def describe_machine(records: Sequence[Record]) -> dict[str, object]:
    """This machine and its libraries, and where and by which commits the records say they were made; without torch."""
    found: dict[str, object] = {"platform": platform.platform(), "python": platform.python_version()}
    found["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found["creditscope"] = creditscope.__version__
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    found["devices"] = sorted({r.provenance.device for r in records} - {""})
    found["commits"] = sorted({r.provenance.commit for r in records} - {""})
    return found
