"""Train a set of runs: those on record are reused, the others go to worker processes, a thread each."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import Record, RunSpec, stored_record
from creditscope.registry import NETS, RULES, TASKS
from creditscope.tasks import load_task
from creditscope.train.data import check_data
from creditscope.train.engines import Group, choose_device, group_runs
from creditscope.train.progress import Progress, Silent
from creditscope.train.recording import Outcome, StoppedError, record_runs

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # glibc would hand the memory of every state back to the system and fault it in again a moment later,
    # which costs a snapshot up to a third of its time
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}
CUDA_JOBS = 16
"""Workers that share a GPU at most: while one measures on its CPU core, or runs kernels too small to fill the device,
others train."""
CUDA_JOB_BYTES = 8 * 2**30
"""Device memory to a worker, so that a small GPU is not shared by many."""
FROM_THE_END = 4
"""On a GPU every so many-th worker takes the last group that is left instead of the first: short runs keep a core busy
and long ones the device, so that they go well beside each other."""
STOPPING = "stopping at the end of the epoch; Ctrl-C again stops at once"


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
) -> list[Record]:
    """Records of all `specs`, in their order; data are checked before the first run starts.

    Runs that differ only in seed are stacked where that is faster (see `engines`). A run that fails does not stop the
    others; its error is raised after they are done. After `time_limit` seconds every run stops at the end of its epoch
    with a checkpoint, and `UnfinishedError` is raised.
    """
    root, progress = Path(root), progress or Silent()
    if jobs is not None and jobs < 1:
        raise CreditscopeError(f"Expected jobs >= 1, but got {jobs}.")
    problems = problems if problems is not None else []
    unique = list({spec.digest(): spec for spec in specs}.values())
    found = {spec.digest(): stored_record(root, spec, problems=problems) for spec in unique}
    missing = [spec for spec in unique if found[spec.digest()] is None]
    for spec in {str((s.task, s.task_options, s.net, s.batch)): s for s in missing}.values():
        check_data(load_task(spec.task, **spec.task_options), spec)
    root.mkdir(parents=True, exist_ok=True)
    place = choose_device(device)
    cores = jobs or choose_jobs(place)
    here = cores == 1 or any(map(_only_in_this_process, missing))
    groups = group_runs(missing, root, device=place, engine=engine, workers=1 if here else cores)
    failures: list[str] = []
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    if missing:
        progress.begin(missing, len(unique) - len(missing))
        try:
            if here or len(groups) == 1:
                _run_here(groups, root, progress, failures, deadline, place)
            else:
                _run_in_workers(groups, root, progress, failures, deadline, place, min(cores, len(groups)))
        finally:
            progress.close()
    if failures:
        raise CreditscopeError("\n".join(_merged(failures)))
    found |= {spec.digest(): stored_record(root, spec, problems=problems) for spec in missing}
    left = sum(record is None for record in found.values())
    if left:
        why = "Stopped" if time_limit is None else f"Stopped at the time limit of {time_limit:g} s"
        raise UnfinishedError(
            f"{why}: {len(unique) - left} of {len(unique)} runs are finished. The same command goes on from here.",
            left=left,
        )
    return [record for spec in specs if (record := found[spec.digest()]) is not None]


def _merged(failures: list[str]) -> list[str]:
    """Each reason once, with the runs that failed for it."""
    runs: dict[str, list[str]] = {}
    for failure in failures:
        run, _, reason = failure.partition(" failed: ")
        runs.setdefault(reason, []).append(run)
    return [f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)} failed: {r}" for r, names in runs.items()]


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_jobs(device: torch.device) -> int:
    """Workers that share a device: one to a core, on a GPU fewer if there are very many, or little memory."""
    if device.type != "cuda":
        return available_cores()
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1, min(available_cores(), CUDA_JOBS, memory // CUDA_JOB_BYTES))


def _only_in_this_process(spec: RunSpec) -> bool:
    """Whether the run uses something registered by a decorator in the caller's own code."""
    own_rule = ":" not in spec.rule and RULES.is_local(spec.rule)
    return own_rule or NETS.is_local(spec.net) or TASKS.is_local(spec.task)


def _run_here(
    groups: Sequence[Group],
    root: Path,
    progress: Progress,
    failures: list[str],
    deadline: float,
    device: torch.device,
) -> None:
    def end(spec: RunSpec, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            failures.append(f"Run {spec.name()} failed: {reason_of(outcome)}")
        progress.end_run(spec, "failed" if isinstance(outcome, Exception) else outcome)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker, so that the bits do not depend on the number of jobs
    try:
        with _interrupts_asked() as interrupted:
            for group in groups:
                record_group(
                    group,
                    root,
                    device=device,
                    on_epoch=progress.epoch,
                    on_end=end,
                    should_stop=lambda: interrupted.is_set() or time.monotonic() >= deadline,
                )
                if interrupted.is_set():
                    raise KeyboardInterrupt
    except StoppedError:
        if interrupted.is_set():  # pyright: ignore[reportPossiblyUnboundVariable]
            raise KeyboardInterrupt from None
    finally:
        torch.set_num_threads(threads)


def record_group(group: Group, root: Path, *, on_end: Callable[[RunSpec, Outcome], None], **options: Any) -> None:
    """`record_runs`, but what fails for the whole group (no memory, no data) is the end of each of its runs."""
    ended: set[str] = set()

    def end(spec: RunSpec, outcome: Outcome) -> None:
        ended.add(spec.digest())
        on_end(spec, outcome)

    try:
        record_runs(group.specs, root, engine=group.engine, on_end=end, **options)
    except StoppedError:
        raise
    except Exception as error:
        for spec in group.specs:
            if spec.digest() not in ended:
                on_end(spec, error)


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


def both_ends(todo: "deque[Group]", count: int) -> list[Callable[[], Group]]:
    """How each of so many workers takes its next group: most of them the first one left, some the last."""
    return [todo.pop if number % FROM_THE_END == 0 else todo.popleft for number in range(1, count + 1)]


def _run_in_workers(
    groups: Sequence[Group],
    root: Path,
    progress: Progress,
    failures: list[str],
    deadline: float,
    device: torch.device,
    count: int,
) -> None:
    todo, stopping = deque(groups), threading.Event()
    takes = both_ends(todo, count) if device.type == "cuda" else [todo.popleft] * count
    workers = [_Worker(root, device, take, progress, failures, stopping) for take in takes]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join(None if deadline == math.inf else max(deadline - time.monotonic(), 0))
        _stop(workers, stopping)
    except KeyboardInterrupt:
        print(STOPPING, file=sys.stderr, flush=True)
        try:
            _stop(workers, stopping)
        except KeyboardInterrupt:
            for worker in workers:
                worker.kill()
        raise


def _stop(workers: "Sequence[_Worker]", stopping: threading.Event) -> None:
    """Let every worker finish its epoch, write its checkpoint and end; those that are done end at once."""
    stopping.set()
    for worker in workers:
        worker.interrupt()
    for worker in workers:
        worker.join()


class _Worker(threading.Thread):
    """A thread that feeds one worker process and listens to it; a process that dies costs its runs alone."""

    def __init__(
        self,
        root: Path,
        device: torch.device,
        take: Callable[[], Group],
        progress: Progress,
        failures: list[str],
        stopping: threading.Event,
    ):
        super().__init__(daemon=True)
        self.root, self.device, self.take = root, device, take
        self.progress, self.failures, self.stopping = progress, failures, stopping
        self.process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                group = self.take()
            except IndexError:
                break
            self._train(group)
        self._reap()

    def interrupt(self) -> None:
        """Ask the process to stop at the end of its epoch; the thread notices, and reaps it."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None:
            self.process.kill()

    def _train(self, group: Group) -> None:
        process = self.process = self.process or self._launch()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps(asdict(group)) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died; reading finds the end
        left = {spec.digest(): spec for spec in group.specs}
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "done":
                return
            spec = left[event["run"]]
            if event["event"] == "epoch":
                self.progress.epoch(spec, event["done"], event["loss"])
            else:
                del left[event["run"]]
                self._end(spec, event["outcome"], event.get("reason"))
        process.wait()
        code = self._reap()
        if not self.stopping.is_set():
            for spec in left.values():
                self._end(spec, "failed", f"its worker ended with exit code {code}.")

    def _end(self, spec: RunSpec, outcome: str, reason: str | None) -> None:
        if reason is not None:
            self.failures.append(f"Run {spec.name()} failed: {reason}")
        self.progress.end_run(spec, outcome)

    def _launch(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "creditscope.train.worker", str(self.root), str(self.device)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **WORKER_ENVIRONMENT},
        )

    def _reap(self) -> int:
        """End the process if it runs, wait for it, close both pipes."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.terminate()
        process.communicate()
        return process.returncode
