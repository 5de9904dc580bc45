"""Train a set of runs to the end: their records, or why there are none."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import Record, RunSpec
from creditscope.train.events import Ended, Event, Note, Planned, Recorded
from creditscope.train.execute import execute


def run_all(
    specs: Sequence[RunSpec],
    root: str | Path,
    *,
    readers: Sequence[Callable[[Event], None]] = (),
    problems: list[str] | None = None,
    time_limit: float | None = None,
    **how: Any,
) -> list[Record]:
    """Records of all `specs`, in their order (`how`: see `execute`); `readers` read every event, `problems` take notes.

    If runs failed, their error is raised after the others are done; if the time was over before, `UnfinishedError`.
    """
    found: dict[str, Record] = {}
    failed: dict[str, list[str]] = {}  # runs by the reason they failed for
    names = {spec.digest(): spec.name() for spec in specs}
    with closing(execute(specs, root, time_limit=time_limit, **how)) as events:
        for event in events:
            for read in readers:
                read(event)
            match event:
                case Planned(found=records):
                    found |= {record.spec.digest(): record for record in records if record.spec}
                case Recorded(record) if record.spec:
                    found[record.spec.digest()] = record
                case Ended(run, "failed", reason):
                    failed.setdefault(reason, []).append(names[run])
                case Note(text) if problems is not None:
                    problems.append(text)
                case _:
                    pass
    if failed:
        more = {reason: f" and {len(runs) - 1} more" if len(runs) > 1 else "" for reason, runs in failed.items()}
        raise CreditscopeError("\n".join(f"Run {r[0]}{more[why]} failed: {why}" for why, r in failed.items()))
    if left := len(names) - len(found):
        why = "Stopped" if time_limit is None else f"Stopped at the time limit of {time_limit:g} s"
        raise UnfinishedError(
            f"{why}: {len(found)} of {len(names)} runs are finished. The same command goes on from here.", left=left
        )
    return [found[spec.digest()] for spec in specs]
