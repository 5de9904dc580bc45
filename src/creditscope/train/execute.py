"""Train a set of runs: those whole on record are reused, the others go to engines, in groups.

`execute` tells what happens, event by event; `run_all` reads it to the end and gives the records.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import Record, RunSpec, keep_failure, stored_record
from creditscope.record.load import seal_notes
from creditscope.registry import NETS, RULES, TASKS
from creditscope.rng import global_stream
from creditscope.tasks import load_task
from creditscope.text import count
from creditscope.train.data import check_data
from creditscope.train.device import choose_device
from creditscope.train.events import NO_MEMORY, Done, Ended, EngineEvent, Event, Note, Planned, Recorded
from creditscope.train.groups import RunGroup, group_runs, longest_first
from creditscope.train.pool import Stopping, choose_jobs, launch_workers, train_in_workers
from creditscope.train.training import StoppedError, train_group


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


def execute(
    specs: Sequence[RunSpec],
    root: str | Path,
    *,
    jobs: int | None = None,
    time_limit: float | None = None,
    device: str = "auto",
    engine: str = "auto",
) -> Generator[Event, None, None]:
    """Train all `specs` that are not on record under `root`; data and nets are checked before the first run starts.

    A run that fails does not stop the others. After `time_limit` seconds every run stops at the end of its epoch with a
    checkpoint (or, within a long snapshot, at the checkpoint before it); with a limit of 0 nothing is trained. Who does
    not read to the end shall close the generator, so that runs are stopped.
    """
    root = Path(root)
    if jobs is not None and jobs < 1:
        raise CreditscopeError(f"Expected jobs >= 1, but got {jobs}.")
    if time_limit is not None and not time_limit >= 0:
        raise CreditscopeError(f"Expected time_limit >= 0 seconds, but got {time_limit:g}.")
    problems: list[str] = []
    unique = {spec.digest(): spec for spec in specs}
    stored = {run: stored_record(root, spec, problems=problems, whole=True) for run, spec in unique.items()}
    missing = [unique[run] for run, record in stored.items() if record is None]
    place = choose_device(device)
    cores = jobs or choose_jobs(place)
    # what a decorator registered in the caller's own code is known in this process alone
    own = any(RULES.is_local(s.rule) or NETS.is_local(s.net) or TASKS.is_local(s.task) for s in missing)
    here = cores == 1 or own
    wanted = missing if time_limit != 0 else []
    if poor := sum(stored_record(root, spec, problems=problems) is not None for spec in wanted):
        lack, are = ("lacks", "is") if poor == 1 else ("lack", "are")
        problems.append(f"{count(poor, 'record')} {lack} what is measured by now and {are} trained again.")
    problems += seal_notes([record for record in stored.values() if record is not None])
    groups = group_runs(wanted, root, device=place, engine=engine, workers=1 if here else cores)
    here = here or len(groups) == 1
    yield from map(Note, problems)
    stopping, ended, otherwise = Stopping(), list[RunSpec](), Counter[str]()

    def records() -> Iterator[Note | Recorded]:
        for event in _records(ended, root):
            if isinstance(event, Recorded) and (why := _other_engine(event.record, engine)):
                otherwise[why] += 1
            yield event

    with stopping.listening(), launch_workers(root, place, 0 if here else min(cores, len(groups))) as processes:
        with stopping.interruptible(presses=1):
            _check(missing)  # while the workers get ready
        root.mkdir(parents=True, exist_ok=True)
        stopping.limit(time_limit)
        yield Planned(tuple(missing), tuple(record for record in stored.values() if record is not None), root)
        if here:
            told = _train_here(groups, root, device=place, stopping=stopping)
        else:
            told = train_in_workers(longest_first(groups), processes, root, device=place, stopping=stopping)
        with closing(told):
            for event in told:
                if isinstance(event, Done):
                    yield from records()
                    continue
                if isinstance(event, Ended) and event.status in ("failed", NO_MEMORY):
                    keep_failure(root, unique[event.run], event.reason)
                    event = replace(event, status="failed")
                elif isinstance(event, Ended):
                    ended.append(unique[event.run])
                yield event
            yield from records()
            yield from (Note(f"{count(runs, 'run')} trained {why}.") for why, runs in otherwise.items())
    if stopping.presses:
        stopping.leave()


def _records(ended: list[RunSpec], root: Path) -> Iterator[Note | Recorded]:
    """What these runs have left, read once."""
    while ended:
        problems: list[str] = []
        record = stored_record(root, ended.pop(0), problems=problems)
        yield from map(Note, problems)
        if record is not None:
            yield Recorded(record)


def _other_engine(record: Record, asked: str) -> str:
    """By which engine a run was trained, and why, if another was asked for."""
    used = "loop" if record.provenance.engine == "loop" else "stacked"
    if asked in ("auto", used):
        return ""
    return f"by engine {used}, {record.provenance.note or f'not {asked}: that is how they were begun'}"


def _train_here(
    groups: Sequence[RunGroup], root: Path, *, device: torch.device, stopping: Stopping
) -> Generator[EngineEvent, None, None]:
    """Train all groups in this process, one after the other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker, so that the bits do not depend on the number of jobs
    try:
        for group in groups:
            events = train_group(group, root, device=device, should_stop=stopping)
            while True:
                with stopping.interruptible(presses=2):  # but not who reads the events: those may hold locks
                    event = next(events, Done())
                yield event
                if isinstance(event, Done):
                    break
            if stopping.presses:
                return
    except StoppedError:
        return
    finally:
        torch.set_num_threads(threads)


def _check(specs: Sequence[RunSpec]) -> None:
    """Refuse data that do not fit, and sizes that the net itself refuses; what else goes wrong is its run's failure."""
    different = {str((s.task, s.task_options, s.net, s.net_options, s.batch)): s for s in specs}
    for _, spec in sorted(different.items()):  # by task, so that its data are read once
        task = load_task(spec.task, **spec.task_options)
        check_data(task, spec)
        try:
            with global_stream(spec.seed, "init"):
                NETS.get(spec.net)(task.input_shape, task.classes, **spec.net_options)
        except Exception as error:
            if isinstance(error, CreditscopeError):
                raise
