"""Train a set of runs: those whole on record are reused, the others go to worker processes, a thread each."""

import math
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import Record, RunSpec, stored_record
from creditscope.registry import NETS, RULES, TASKS
from creditscope.rng import global_stream
from creditscope.tasks import load_task
from creditscope.train.data import check_data
from creditscope.train.engines import Group, choose_device, group_runs
from creditscope.train.order import longest_first
from creditscope.train.pool import STOPPING, Ledger, choose_jobs, launch_workers, run_in_workers
from creditscope.train.progress import Progress, Silent
from creditscope.train.recording import Outcome, StoppedError, record_runs
from creditscope.train.room import release_memory
from creditscope.words import count


def run_all(
    specs: Sequence[RunSpec],
    root: str | Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    problems: list[str] | None = None,
    time_limit: float | None = None,
    device: str = "auto",
    engine: str = "auto",
    reused: int = 0,
    on_records: Callable[[list[Record]], None] = lambda records: None,
) -> list[Record]:
    """Records of all `specs`, in their order; data and nets are checked before the first run starts.

    Runs that differ only in seed are stacked where that is faster (see `engines`). A run that fails does not stop the
    others; its error is raised after they are done. After `time_limit` seconds every run stops at the end of its epoch
    with a checkpoint (or, within a long snapshot, at the checkpoint before it), and `UnfinishedError` is raised; with a
    limit of 0 nothing is trained. `reused` more runs are on record, which `progress` says. `on_records` is told of runs
    that have come to their end; it is called in this thread, every so often, while others are trained. `problems` are
    told of records that cannot be read, and how many lack what is measured by now.
    """
    root, progress = Path(root), progress or Silent()
    if jobs is not None and jobs < 1:
        raise CreditscopeError(f"Expected jobs >= 1, but got {jobs}.")
    if time_limit is not None and not time_limit >= 0:
        raise CreditscopeError(f"Expected time_limit >= 0 seconds, but got {time_limit:g}.")
    problems = problems if problems is not None else []
    unique = list({spec.digest(): spec for spec in specs}.values())
    found = {spec.digest(): stored_record(root, spec, problems=problems, whole=True) for spec in unique}
    missing = [spec for spec in unique if found[spec.digest()] is None]
    place = choose_device(device)
    cores = jobs or choose_jobs(place)
    here = cores == 1 or any(map(_only_in_this_process, missing))
    wanted = missing if time_limit != 0 else []
    if poor := sum(stored_record(root, spec, problems=problems) is not None for spec in wanted):
        lack, are = ("lacks", "is") if poor == 1 else ("lack", "are")
        problems.append(f"{count(poor, 'record')} {lack} what is measured by now and {are} trained again.")
    groups = group_runs(wanted, root, device=place, engine=engine, workers=1 if here else cores)
    here = here or len(groups) == 1
    ledger = Ledger(root, progress)

    def look() -> None:
        """Read what was finished since the last look."""
        new = {spec.digest(): stored_record(root, spec, problems=problems) for spec in ledger.take_ended()}
        found.update(new)
        if records := [record for record in new.values() if record is not None]:
            on_records(records)

    with launch_workers(root, place, 0 if here else min(cores, len(groups))) as processes:
        _check_all(missing)  # while the workers get ready
        root.mkdir(parents=True, exist_ok=True)
        deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        progress.begin(missing, len(unique) - len(missing) + reused, root)
        try:
            if here:
                _run_here(groups, ledger, deadline=deadline, device=place, after_group=look)
            else:
                ordered = longest_first(groups)
                run_in_workers(ordered, ledger, processes, deadline=deadline, device=place, meanwhile=look)
        finally:
            progress.close()
    look()
    if ledger.failed:
        raise CreditscopeError(ledger.error())
    left = sum(record is None for record in found.values())
    if left:
        why = "Stopped" if time_limit is None else f"Stopped at the time limit of {time_limit:g} s"
        raise UnfinishedError(
            f"{why}: {len(unique) - left} of {len(unique)} runs are finished. The same command goes on from here.",
            left=left,
        )
    return [record for spec in specs if (record := found[spec.digest()]) is not None]


def _check_all(specs: Sequence[RunSpec]) -> None:
    different = {str((s.task, s.task_options, s.net, s.net_options, s.batch)): s for s in specs}
    for _, spec in sorted(different.items()):  # by task, so that its data are read once
        _check(spec)


def _check(spec: RunSpec) -> None:
    """Refuse data that do not fit, and sizes that the net itself refuses; what else goes wrong is its run's failure."""
    task = load_task(spec.task, **spec.task_options)
    check_data(task, spec)
    try:
        with global_stream(spec.seed, "init"):
            NETS.get(spec.net)(task.input_shape, task.classes, **spec.net_options)
    except CreditscopeError:
        raise
    except Exception:
        return


def _only_in_this_process(spec: RunSpec) -> bool:
    """Whether the run uses something registered by a decorator in the caller's own code."""
    return RULES.is_local(spec.rule) or NETS.is_local(spec.net) or TASKS.is_local(spec.task)


def _run_here(
    groups: Sequence[Group],
    ledger: Ledger,
    *,
    deadline: float,
    device: torch.device,
    after_group: Callable[[], None],
) -> None:
    def end(spec: RunSpec, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            ledger.end(spec, "failed", reason_of(outcome))
        else:
            ledger.end(spec, outcome)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker, so that the bits do not depend on the number of jobs
    try:
        with _interrupts_asked() as interrupted:
            for group in groups:
                record_group(
                    group,
                    ledger.root,
                    device=device,
                    on_epoch=ledger.progress.epoch,
                    on_end=end,
                    should_stop=lambda: interrupted.is_set() or time.monotonic() >= deadline,
                )
                after_group()
                if interrupted.is_set():
                    raise KeyboardInterrupt
    except StoppedError:
        if interrupted.is_set():  # pyright: ignore[reportPossiblyUnboundVariable]
            raise KeyboardInterrupt from None
    finally:
        torch.set_num_threads(threads)


def record_group(
    group: Group, root: Path, *, device: torch.device, on_end: Callable[[RunSpec, Outcome], None], **options: Any
) -> None:
    """`record_runs`, but what fails for the whole group (no memory, no data) is the end of each of its runs.

    Device memory that it used is given back, for others or the next group.
    """
    ended: set[str] = set()

    def end(spec: RunSpec, outcome: Outcome) -> None:
        ended.add(spec.digest())
        on_end(spec, outcome)

    try:
        record_runs(group.specs, root, engine=group.engine, device=device, on_end=end, **options)
    except StoppedError:
        raise
    except Exception as error:
        for spec in group.specs:
            if spec.digest() not in ended:
                on_end(spec, error)
    finally:
        release_memory(device)


@contextmanager
def _interrupts_asked() -> Iterator[threading.Event]:
    """Inside, the first Ctrl-C sets the event, so that the epoch can end; the second stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield asked
        return

    def ask(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        print(STOPPING, file=sys.stderr, flush=True)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def reason_of(error: Exception) -> str:
    """What to say of an error: its text if it is ours, otherwise where it came from, too."""
    return str(error) if isinstance(error, CreditscopeError) else "".join(traceback.format_exception(error))
