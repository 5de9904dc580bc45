"""Worker processes: who takes which runs next, and what becomes of them."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch

from creditscope.record import RunSpec, keep_failure
from creditscope.train.engines import Group
from creditscope.train.progress import Progress

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
LOOK = 1.0
"""Seconds between two looks at what has ended meanwhile."""
NO_MEMORY = "no memory"
"""How a worker says that a run did not fit on the device beside what others have there."""
STOPPING = "stopping at the end of the epoch; Ctrl-C again stops at once"


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_jobs(device: torch.device) -> int:
    """Workers that share a device: one to a core, on a GPU fewer if there are very many, or little memory."""
    if device.type != "cuda":
        return available_cores()
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1, min(available_cores(), CUDA_JOBS, memory // CUDA_JOB_BYTES))


class Ledger:
    """How runs end: told to who watches, and if they failed, why, in their records and for the error at the end."""

    def __init__(self, root: Path, progress: Progress):
        self.root, self.progress = root, progress
        self.failed: dict[str, list[RunSpec]] = {}
        """Runs by the reason they failed for."""
        self._ended: deque[RunSpec] = deque()

    def end(self, spec: RunSpec, outcome: str, reason: str | None = None) -> None:
        """A run has come to its end; with a reason it failed."""
        if reason is not None:
            self.failed.setdefault(reason, []).append(spec)
            keep_failure(self.root, spec, reason)
        else:
            self._ended.append(spec)
        self.progress.end_run(spec, outcome)

    def take_ended(self) -> list[RunSpec]:
        """Runs that have come to their end and did not fail, each told once."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def error(self) -> str:
        """Each reason once, with the runs that failed for it; empty if none did."""
        lines = []
        for reason, runs in self.failed.items():
            more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
            lines.append(f"Run {runs[0].name()}{more} failed: {reason}")
        return "\n".join(lines)


class Todo:
    """The groups that are left, and how many workers take of them."""

    def __init__(self, groups: Sequence[Group], workers: int):
        self._left, self._workers, self._lock = deque(groups), workers, threading.Lock()

    def take(self, *, last: bool) -> Group | None:
        """The first or the last group left; None, and the worker goes, if there is none."""
        with self._lock:
            if not self._left:
                self._workers -= 1
                return None
            return self._left.pop() if last else self._left.popleft()

    @property
    def alone(self) -> bool:
        """Whether a single worker is left."""
        return self._workers == 1

    def give_back(self, group: Group) -> bool:
        """Leave a group that found no memory to the other workers, of which there is one less now; False: no others."""
        with self._lock:
            if self._workers == 1:
                return False
            self._workers -= 1
            self._left.appendleft(group)
            return True


@contextmanager
def launch_workers(root: Path, device: torch.device, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that get ready for runs while the caller sees to other things; afterwards all have ended."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            processes.append(_launch(root, device))
        yield processes
    finally:
        for process in processes:
            process.kill()  # one that was fed has ended by now, and the others have nothing to lose
        for process in processes:
            _end(process)


def run_in_workers(
    groups: Sequence[Group],
    ledger: Ledger,
    processes: Sequence[subprocess.Popen[str]],
    *,
    deadline: float,
    device: torch.device,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Train all groups in these processes; `meanwhile` is called every so often until they are done.

    At the deadline they are asked to stop, even if it is still being called then.
    """
    count = len(processes)
    todo, stopping = Todo(groups, count), threading.Event()
    last = [device.type == "cuda" and number % FROM_THE_END == 0 for number in range(1, count + 1)]
    workers = [
        _Worker(ledger, device, todo, end, stopping, process) for end, process in zip(last, processes, strict=True)
    ]
    alarm = threading.Timer(min(deadline - time.monotonic(), threading.TIMEOUT_MAX), _ask, (workers, stopping))
    alarm.daemon = True
    try:
        alarm.start()
        for worker in workers:
            worker.start()
        while not stopping.is_set() and (left := [worker for worker in workers if not worker.done.is_set()]):
            left[0].done.wait(LOOK)
            meanwhile()
        _stop(workers, stopping)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            print(STOPPING, file=sys.stderr, flush=True)
        try:
            _stop(workers, stopping)
        except KeyboardInterrupt:
            for worker in workers:
                worker.kill()
            _wait_for(workers)
        raise
    finally:
        alarm.cancel()


def _stop(workers: "Sequence[_Worker]", stopping: threading.Event) -> None:
    """Let every worker finish its epoch, write its checkpoint and end; those that are done end at once."""
    _ask(workers, stopping)
    _wait_for(workers)


def _ask(workers: "Sequence[_Worker]", stopping: threading.Event) -> None:
    stopping.set()
    for worker in workers:
        worker.interrupt()


def _wait_for(workers: "Sequence[_Worker]") -> None:
    for worker in workers:
        while worker.ident is not None and not worker.done.wait(LOOK):  # if it was started
            pass  # now and then awake: a Ctrl-C that the system hands to another thread does not wake this one


class _Worker(threading.Thread):
    """A thread that feeds one worker process and listens to it; a process that dies costs its runs alone."""

    def __init__(
        self,
        ledger: Ledger,
        device: torch.device,
        todo: Todo,
        last: bool,
        stopping: threading.Event,
        process: subprocess.Popen[str] | None = None,
    ):
        super().__init__(daemon=True)
        self.ledger, self.device, self.todo, self.last, self.stopping = ledger, device, todo, last, stopping
        self.process = process
        self.done = threading.Event()
        """To be waited for instead of `join`, which takes a thread for ended once Ctrl-C has interrupted it."""

    def run(self) -> None:
        try:
            self._feed()
        finally:
            self.done.set()

    def _feed(self) -> None:
        while not self.stopping.is_set():
            group = self.todo.take(last=self.last)
            if group is None:
                break
            alone = self.todo.alone
            short = self._train(group)
            if short is None:
                continue
            self._reap()
            if self.stopping.is_set() or self.todo.give_back(short):
                return
            if not alone:
                short = self._train(short)
            for spec in short.specs if short else ():
                reason = f"too little memory on {self.device}, with no other worker there. Try a smaller batch."
                self.ledger.end(spec, "failed", reason)
        self._reap()

    def interrupt(self) -> None:
        """Ask the process to stop as soon as it can; the thread notices, and reaps it."""
        process = self.process
        if process is not None:
            process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        process = self.process
        if process is not None:
            process.kill()

    def _train(self, group: Group) -> Group | None:
        """Train a group; those of its runs that found no memory are handed back."""
        process = self.process = self.process or _launch(self.ledger.root, self.device)
        if self.stopping.is_set():  # asked while the process was launched, when there was none to ask
            process.terminate()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps(asdict(group)) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died; reading finds the end
        left = {spec.digest(): spec for spec in group.specs}
        short: list[RunSpec] = []
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "done":
                return Group(tuple(short), group.engine) if short else None
            spec = left[event["run"]]
            if event["event"] == "epoch":
                self.ledger.progress.epoch(spec, event["done"], event["loss"])
                continue
            del left[event["run"]]
            if event["outcome"] == NO_MEMORY:
                short.append(spec)
            else:
                self.ledger.end(spec, event["outcome"], event.get("reason"))
        process.wait()
        code = self._reap()
        if not self.stopping.is_set():
            for spec in left.values():
                self.ledger.end(spec, "failed", f"its worker ended with exit code {code}.")
        return None

    def _reap(self) -> int:
        """End the process if there is one."""
        process, self.process = self.process, None
        return _end(process) if process is not None else 0


def _launch(root: Path, device: torch.device) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "creditscope.train.worker", str(root), str(device)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **WORKER_ENVIRONMENT},
        process_group=0,  # a Ctrl-C at the terminal is for this process, which then asks them
    )


def _end(process: subprocess.Popen[str]) -> int:
    """Ask a process to end if it runs, wait for it, close both pipes; nothing if that was done before."""
    assert process.stdout
    if not process.stdout.closed:
        process.terminate()
        process.communicate()
    return process.returncode
