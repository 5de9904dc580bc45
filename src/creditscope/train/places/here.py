"""Processes of this machine, one to a slot, so that one that dies takes nobody along."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from loky import ProcessPoolExecutor
from loky.backend.resource_tracker import ensure_running

from creditscope.train import job
from creditscope.train.device import choose_device, choose_slots
from creditscope.train.places import Slot

SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # or else a file in the current folder that is called like a module would be run
WORKER_ENVIRONMENT = SAFE_PATH | {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # glibc would hand the memory of every state back to the system and fault it in again a moment later,
    # which costs a snapshot up to a third of its time
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",  # runs differ in size; none is a leak
}
LOOK = 0.5  # seconds between two looks whether the parent is there
HELD_BACK = (signal.SIGINT, signal.SIGTERM)


class Here:
    """One worker to a core, or several that share a GPU."""

    name, outlives, whole = "here", False, False

    def __init__(self, *, device: str, slots: int | None):
        self.device = choose_device(device)
        self.count = slots or choose_slots(self.device)

    def open(self, count: int) -> list[Slot]:
        return [_Process(str(self.device)) for _ in range(count)]


make_place = Here


class _Process:
    """A worker process, which gets ready at once."""

    def __init__(self, device: str):
        self.device, self._lock = device, threading.Lock()
        self._start()

    def _start(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        self._executor = ProcessPoolExecutor(
            1, env=WORKER_ENVIRONMENT, initializer=begin_worker, initargs=(os.getpid(), in_main)
        )
        with _launching():
            self._executor.submit(get_ready, self.device)

    def submit(self, function: Any, text: str) -> "Future[Any]":
        return self._executor.submit(function, text)

    def renew(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        with self._lock:  # who watches for signals may end it, too
            self._executor.shutdown(kill_workers=True)


@contextmanager
def _launching() -> Iterator[None]:
    """Inside, processes are born with signals held back, until they know what to do with them; and so are loky's
    helpers, which keep to a safe path."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK) if hasattr(signal, "pthread_sigmask") else None
    kept = os.environ.get("PYTHONSAFEPATH")
    os.environ |= SAFE_PATH
    try:
        ensure_running()
        resource_tracker.ensure_running()
        yield
    finally:
        if kept is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = kept
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_worker(parent: int, in_main: bool) -> None:
    """What a worker process does first: it ends with its parent, heeds SIGTERM at the end of a step, and not Ctrl-C,
    which is the parent's to decide about. What a user's rule prints goes to standard error."""
    if sys.platform == "linux" and in_main:  # the system's word is about the thread that launched it
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: job.asked.append(number))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
    with suppress(OSError):
        os.dup2(2, 1)


def end_with(parent: int) -> None:
    """End this process at once when its parent has gone, which nobody was asked about: a kill, a crash."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def get_ready(device: str) -> None:
    """Wake the device while there is nothing else to do; what is amiss, runs will say."""
    import torch

    from creditscope.train import training  # noqa: F401 (takes seconds)

    with suppress(Exception):
        torch.zeros((), device=device)
