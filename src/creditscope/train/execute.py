"""Train a set of runs: those whole on record are reused, the others go to a place where they are trained, in groups.

`execute` tells what happens, event by event; `run_all` reads it to the end and gives the records.
"""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import Record, RunSpec, bundle_if_many, keep_failure, stored_record
from creditscope.record.load import seal_notes
from creditscope.record.stored import status_of
from creditscope.registry import NETS
from creditscope.rng import global_stream
from creditscope.tasks import load_task
from creditscope.text import count
from creditscope.train.data import check_data
from creditscope.train.drive import TRIES, Driver
from creditscope.train.events import NO_MEMORY, Ended, Event, Note, Planned, Recorded
from creditscope.train.groups import group_runs, longest_first
from creditscope.train.local import CannotSendError, pickle_local
from creditscope.train.places import find_place
from creditscope.train.stopping import LEAVING, STOPPING, Stopping
from creditscope.train.work import working


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
    problems = [] if problems is None else problems
    found: dict[str, Record] = {}
    whole: tuple[RunSpec, ...] = ()
    failed: dict[str, list[str]] = {}  # runs by the reason they failed for
    names = {spec.digest(): spec.name() for spec in specs}
    with closing(execute(specs, root, time_limit=time_limit, **how)) as events:
        for event in events:
            for read in readers:
                read(event)
            match event:
                case Planned(found=whole):
                    pass
                case Recorded(record) if record.spec:
                    found[record.spec.digest()] = record
                case Ended(run, "failed", reason):
                    failed.setdefault(reason, []).append(names[run])
                case Note(text):
                    problems.append(text)
                case _:
                    pass
    reused = {spec.digest(): stored_record(Path(root), spec, problems=problems) for spec in whole}
    found |= {run: record for run, record in reused.items() if record}
    problems += seal_notes([record for record in reused.values() if record])
    if damaged := [spec for spec in whole if reused[spec.digest()] is None]:  # as was found only now, and told
        again = run_all(damaged, root, readers=readers, problems=problems, time_limit=time_limit, **how)
        found |= {spec.digest(): record for spec, record in zip(damaged, again, strict=True)}
    if failed:
        more = {reason: f" and {len(runs) - 1} more" if len(runs) > 1 else "" for reason, runs in failed.items()}
        raise CreditscopeError("\n".join(f"Run {r[0]}{more[why]} failed: {shorten(why)}" for why, r in failed.items()))
    if left := len(names) - len(found):
        why = "Stopped" if time_limit is None else f"Stopped at the time limit of {time_limit:g} s"
        raise UnfinishedError(
            f"{why}: {len(found)} of {len(names)} runs are finished. The same command goes on from here.", left=left
        )
    return [found[spec.digest()] for spec in specs]


def shorten(why: str) -> str:
    """Of a traceback its end, and where that was raised; the run's folder keeps all of it. Other reasons as they are.

    >>> shorten("Traceback …\\n  File '/a/rule.py', line 7, in credit\\nValueError: odd".replace("'", '"'))
    'ValueError: odd (rule.py, line 7, in credit)'
    """
    if not why.startswith("Traceback"):
        return why
    places = re.findall(r'^  File "(.*)", (line \d+), in (.*)$', why, re.MULTILINE)
    last = why.strip().splitlines()[-1]
    return f"{last} ({Path(places[-1][0]).name}, {places[-1][1]}, in {places[-1][2]})" if places else last


def execute(
    specs: Sequence[RunSpec],
    root: str | Path,
    *,
    on: Any = "here",
    slots: int | None = None,
    tries: int = TRIES,
    time_limit: float | None = None,
    device: str = "auto",
    engine: str = "auto",
    settings: Mapping[str, Mapping[str, str]] | None = None,
) -> Generator[Event, None, None]:
    """Train all `specs` that are not on record under `root`; data and nets are checked before the first run starts.

    `on` names the place (here, slurm, ray, ray:ADDRESS) or is an executor, with `slots` workers at a time; `settings`
    of places go by their names. A run that fails does not stop the others; one whose worker dies is given to another,
    `tries` times. After `time_limit` seconds every run stops at the end of its step with a checkpoint (or, within a
    long snapshot, at the checkpoint before it); with a limit of 0 nothing is trained. Who does not read to the end
    shall close the generator, so that runs are stopped.
    """
    root = Path(root)
    for name, number in (("slots", slots), ("tries", tries)):
        if number is not None and number < 1:
            raise CreditscopeError(f"Expected {name} >= 1, but got {number}.")
    if time_limit is not None and not time_limit >= 0:
        raise CreditscopeError(f"Expected time_limit >= 0 seconds, but got {time_limit:g}.")
    unique = {spec.digest(): spec for spec in specs}
    place = find_place(on, device=device, slots=slots, settings=settings or {})
    notes, local = list[str](), ""
    states = {run: status_of(root, spec, notes) for run, spec in unique.items()}
    missing = [unique[run] for run, state in states.items() if state in ("", "lacking")]
    whole = tuple(unique[run] for run, state in states.items() if state not in ("", "lacking"))
    wanted = missing if time_limit != 0 else []
    if poor := sum(states[spec.digest()] == "lacking" for spec in wanted):
        lack, are = ("lacks", "is") if poor == 1 else ("lack", "are")
        notes.append(f"{count(poor, 'record')} {lack} what is measured by now and {are} trained again.")
    alone = place.name == "here" and place.count == 1
    if not alone:
        try:
            local = pickle_local(wanted)
        except CannotSendError as error:
            if place.name != "here":
                raise
            alone = True
            notes.append(f"Trained in this process, one run after the other: {error}")
    groups = group_runs(wanted, root, device=place.device, engine=engine, workers=1 if alone else place.count)
    alone = alone or (place.name == "here" and len(groups) <= 1)
    yield from map(Note, notes)
    stopping, otherwise = Stopping(), Counter[str]()
    stopping.says = LEAVING if place.outlives else STOPPING
    with ExitStack() as held:
        held.enter_context(stopping.listening())
        opened = [] if alone else place.open(min(place.count, len(groups)))
        for slot in opened:
            held.callback(slot.close)
        with stopping.interruptible(presses=1):
            _check(missing)  # while the workers get ready
        root.mkdir(parents=True, exist_ok=True)
        stopping.limit(time_limit)
        yield Planned(tuple(missing), whole, root)
        if not groups:
            return
        names = [spec.name() for spec in wanted]
        work = held.enter_context(working(root, place.name, names, outlives=place.outlives))
        stopping.told = work.is_stopped
        groups = groups if alone else longest_first(groups)
        driver = Driver(groups, work, device=place.device, stopping=stopping, tries=tries)
        told = driver.train_here() if alone else driver.train_at(place, opened, defined=local)
        with closing(told):
            for event in told:
                if isinstance(event, Ended) and event.status in ("failed", NO_MEMORY):
                    keep_failure(root, unique[event.run], event.reason)
                    event = replace(event, status="failed")
                yield event
                if isinstance(event, Ended) and event.status != "failed":
                    for found in _records(unique[event.run], root):
                        if isinstance(found, Recorded) and (why := _other_engine(found.record, engine)):
                            otherwise[why] += 1
                        yield found
            yield from (Note(f"{count(runs, 'run')} trained {why}.") for why, runs in otherwise.items())
    if stopping.presses:
        stopping.leave()
    bundle_if_many(root)


def _records(spec: RunSpec, root: Path) -> Iterator[Note | Recorded]:
    """What a run has left."""
    problems: list[str] = []
    record = stored_record(root, spec, problems=problems)
    yield from map(Note, problems)
    if record is not None:
        yield Recorded(record)


def _other_engine(record: Record, asked: str) -> str:
    """By which engine a run was trained, and why, if another was asked for."""
    used = "loop" if record.provenance.engine == "loop" else "stacked"
    if asked in ("auto", used):
        return ""
    return f"by engine {used}, {record.provenance.note or f'not {asked}: that is how they were begun'}"


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
