"""Worker processes: who takes which groups of runs next, what they tell of them, and when all shall stop."""

import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import torch

import creditscope
from creditscope.record import RunSpec
from creditscope.train.events import NO_MEMORY, Done, Ended, EngineEvent, from_line
from creditscope.train.groups import RunGroup

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # glibc would hand the memory of every state back to the system and fault it in again a moment later,
    # which costs a snapshot up to a third of its time
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}
CUDA_JOBS = 16  # workers that share a GPU at most: while one measures, or runs small kernels, others train
CUDA_JOB_BYTES = 8 * 2**30  # device memory to a worker, so that a small GPU is not shared by many
FROM_THE_END = 4
"""On a GPU every so many-th worker takes the last group that is left instead of the first: short runs keep a core busy
and long ones the device, so that they go well beside each other."""
LOOK = 1.0  # seconds waited at a time: a Ctrl-C that the system hands to another thread does not wake the one it is for
LOOK_UP, OVER = b"!", b"."  # what the thread that watches for the end is woken with
WORKER = (
    "-P",  # or else a file in the current folder that is called like a module would be run for it
    "-c",
    f"import sys; sys.path.append({str(Path(creditscope.__file__).parents[1])!r}); "
    "from creditscope.train.worker import main; main()",
)
"""What Python is told to become a worker; it finds this very package, wherever its parent did."""
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


class Stopping:
    """Whether to stop: asked by the runs after every epoch, and by who feeds the workers.

    Signals are counted. What they bring about is seen to by a thread, and only where `interruptible` says so does one
    raise, once: an exception out of a signal handler can come between taking a lock and knowing that it is held.
    """

    def __init__(self) -> None:
        self.deadline, self.presses, self.given_up = math.inf, 0, False
        self.ask: Callable[[], None] = lambda: None
        """What asks others to stop, or ends them if it shall be at once."""
        self._signal, self._raise_from = int(signal.SIGINT), math.inf
        self._bell: socket.socket | None = None

    def __call__(self) -> bool:
        """Whether all runs shall stop at the end of their epoch."""
        return self.given_up or self.presses > 0 or time.monotonic() >= self.deadline

    @property
    def at_once(self) -> bool:
        """Whether they shall not even end their epoch."""
        return self.presses > 1

    def limit(self, seconds: float | None) -> None:
        """Stop so many seconds from now."""
        if seconds is not None:
            self.deadline = time.monotonic() + seconds
            self._wake()

    def give_up(self) -> None:
        """Stop, because who asked for the runs has gone."""
        self.given_up = True
        self._wake()

    def leave(self) -> NoReturn:
        """Raise what the signal stands for."""
        raise KeyboardInterrupt if self._signal == signal.SIGINT else SystemExit(128 + self._signal)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, the first Ctrl-C or SIGTERM is only counted, so that the epoch can end; the second stops at once."""
        ear, bell = socket.socketpair()
        watcher = threading.Thread(target=self._watch, args=(ear,), daemon=True)
        watcher.start()
        self._bell = bell
        before: dict[int, Any] = {}
        # signals can be handled in the main thread alone, and are not where the shell, or who calls, has said so
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, None), (signal.SIGTERM, signal.SIG_DFL)):
                handler = signal.getsignal(number)
                if handler is not signal.SIG_IGN and (usual is None or handler is usual):
                    before[number] = signal.signal(number, self._press)
        try:
            yield
        finally:
            self._raise_from = math.inf
            bell.sendall(OVER)
            watcher.join()
            for number, handler in before.items():
                signal.signal(number, handler)
            self._bell = None
            bell.close()
            ear.close()

    @contextmanager
    def interruptible(self, *, presses: int) -> Iterator[None]:
        """Inside, so many signals raise at once what they stand for."""
        self._raise_from = presses
        try:
            if self.presses >= presses:
                self.leave()
            yield
        finally:
            self._raise_from = math.inf

    def _press(self, number: int, _: object) -> None:
        """Takes no lock and prints nothing: whatever it interrupts may hold what that needs."""
        self.presses, self._signal = self.presses + 1, number
        self._wake()
        if self.presses >= self._raise_from:
            self._raise_from = math.inf
            self.leave()

    def _wake(self) -> None:
        if self._bell is not None:
            self._bell.sendall(LOOK_UP)

    def _watch(self, ear: socket.socket) -> None:
        """Asks when all shall stop, and again when it shall be at once; says once that a signal has come."""
        asked, said, over = 0, False, False
        while not over:
            left = None if self.deadline == math.inf or asked else max(0.0, self.deadline - time.monotonic())
            if select.select([ear], [], [], left)[0]:
                over = OVER in ear.recv(4096)
            if self.presses and not said:
                said = True
                with suppress(OSError, ValueError):  # if nobody reads it, all shall stop nevertheless
                    print(STOPPING, file=sys.stderr, flush=True)
            if self() + self.at_once > asked:
                asked = self() + self.at_once
                self.ask()


class Todo:
    """The groups that are left, and how many workers take of them."""

    def __init__(self, groups: Sequence[RunGroup], workers: int):
        self._left, self._workers, self._lock = deque(groups), workers, threading.Lock()

    def take(self, *, last: bool) -> RunGroup | None:
        """The first or the last group left; None, and the worker goes, if there is none."""
        with self._lock:
            if not self._left:
                self._workers -= 1
                return None
            return self._left.pop() if last else self._left.popleft()

    @property
    def alone(self) -> bool:
        return self._workers == 1

    def give_back(self, group: RunGroup) -> bool:
        """Leave a group that found no memory to the other workers, of which there is one less now; False: no others."""
        with self._lock:
            if self.alone:
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
            _kill(process)  # one that was fed has ended by now, and the others have nothing to lose
        for process in processes:
            _end(process)


def train_in_workers(
    groups: Sequence[RunGroup],
    processes: Sequence[subprocess.Popen[str]],
    root: Path,
    *,
    device: torch.device,
    stopping: Stopping,
) -> Generator[EngineEvent, None, None]:
    """Train all groups in these processes, which are asked to stop when all shall, even if nobody listens just then.

    If who listens goes, they end their epoch and leave checkpoints; after a second Ctrl-C they are killed. To be called
    where `stopping` is listening.
    """
    todo, events = Todo(groups, len(processes)), SimpleQueue[EngineEvent | None]()
    workers = [
        _Worker(root, device, todo, device.type == "cuda" and number % FROM_THE_END == 0, events, stopping, process)
        for number, process in enumerate(processes, start=1)
    ]

    def ask() -> None:
        for worker in workers:
            worker.interrupt()

    stopping.ask = ask
    if stopping():  # since before there was somebody to ask
        ask()
    try:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers) or not events.empty():
            with suppress(Empty):
                if (event := events.get(timeout=LOOK)) is not None:
                    yield event
    except BaseException:
        stopping.give_up()
        raise
    finally:
        for worker in workers:
            while worker.is_alive():
                worker.join(LOOK)


class _Worker(threading.Thread):
    """A thread that feeds one worker process and listens to it; a process that dies costs its runs alone."""

    def __init__(
        self,
        root: Path,
        device: torch.device,
        todo: Todo,
        last: bool,
        events: "SimpleQueue[EngineEvent | None]",
        stopping: Stopping,
        process: subprocess.Popen[str] | None = None,
    ):
        super().__init__(daemon=True)
        self.root, self.device, self.todo, self.last = root, device, todo, last
        self.events, self.stopping, self.process = events, stopping, process

    def run(self) -> None:
        try:
            self._feed()
        finally:
            self.events.put(None)  # wakes who waits for an event

    def _feed(self) -> None:
        while not self.stopping():
            group = self.todo.take(last=self.last)
            if group is None:
                break
            alone = self.todo.alone
            short = self._train(group)
            if short is None:
                continue
            self._reap()
            if self.stopping() or self.todo.give_back(short):
                return
            if not alone:
                short = self._train(short)
            for spec in short.specs if short else ():
                reason = f"too little memory on {self.device}, with no other worker there. Try a smaller batch."
                self.events.put(Ended(spec.digest(), "failed", reason))
        self._reap()

    def interrupt(self) -> None:
        """Let the process end its epoch, write its checkpoint and end, or end it; the thread notices, and reaps it."""
        if (process := self.process) is not None:
            _kill(process) if self.stopping.at_once else process.terminate()

    def _train(self, group: RunGroup) -> RunGroup | None:
        """Train a group; those of its runs that found no memory are handed back."""
        process = self.process = self.process or _launch(self.root, self.device)
        if self.stopping():  # asked while the process was launched, when there was none to ask
            self.interrupt()
        assert process.stdin
        assert process.stdout
        with suppress(BrokenPipeError):  # it died; reading finds the end
            process.stdin.write(json.dumps(asdict(group)) + "\n")
            process.stdin.flush()
        left = {spec.digest(): spec for spec in group.specs}
        short: list[RunSpec] = []
        for line in process.stdout:
            event = from_line(line)
            if isinstance(event, Ended):
                spec = left.pop(event.run)
                if event.status == NO_MEMORY:
                    short.append(spec)
                    continue
            self.events.put(event)
            if isinstance(event, Done):
                return RunGroup(tuple(short), group.engine) if short else None
        process.wait()
        code = self._reap()
        if not self.stopping():
            for run in left:
                self.events.put(Ended(run, "failed", f"its worker ended with exit code {code}."))
        return None

    def _reap(self) -> int:
        code = _end(self.process) if self.process is not None else 0
        self.process = None  # only now: until it has ended it can be interrupted
        return code


def _launch(root: Path, device: torch.device) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *WORKER, str(root), str(device), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **WORKER_ENVIRONMENT},
        process_group=0,  # a Ctrl-C at the terminal is for this process, which then asks them
    )


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process, and what it may have started: they are one group."""
    if not hasattr(os, "killpg"):  # not a POSIX system
        process.kill()
    elif process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[str]) -> int:
    """Ask a process to end if it runs, wait for it, close both pipes; nothing if that was done before."""
    assert process.stdout
    if not process.stdout.closed:
        process.terminate()
        process.communicate()
    return process.returncode
