"""Train a set of runs: those on record are reused, the others go to one single-threaded worker per core."""

import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from creditscope.errors import CreditscopeError
from creditscope.record import Record, RunSpec, stored_record
from creditscope.registry import NETS, RULES, TASKS
from creditscope.tasks import load_task
from creditscope.train.data import check_data
from creditscope.train.progress import Progress, Silent
from creditscope.train.recording import StoppedError, record_run

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # glibc would hand the memory of every state back to the system and fault it in again a moment later,
    # which costs a snapshot up to a third of its time
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}


def run_all(
    specs: Sequence[RunSpec],
    root: str | Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    problems: list[str] | None = None,
    time_limit: float | None = None,
) -> list[Record]:
    """Records of all `specs`, in their order; data are checked before the first run starts.

    A run that fails does not stop the others; its error is raised after they are done. After `time_limit` seconds
    every run stops at the end of its epoch with a checkpoint, and `UnfinishedError` is raised.
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
    failures: list[str] = []
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    if missing:
        progress.begin(missing, len(unique) - len(missing))
        try:
            cores = jobs or available_cores()
            if min(cores, len(missing)) == 1 or any(map(_only_in_this_process, missing)):
                _run_here(missing, root, progress, failures, deadline)
            else:
                _run_in_workers(missing, root, progress, failures, deadline, min(cores, len(missing)))
        finally:
            progress.close()
    if failures:
        raise CreditscopeError("\n".join(_merged(failures)))
    found |= {spec.digest(): stored_record(root, spec, problems=problems) for spec in missing}
    left = sum(record is None for record in found.values())
    if left:
        why = "Stopped" if time_limit is None else f"Stopped at the time limit of {time_limit:g} s"
        raise UnfinishedError(
            f"{why}: {len(unique) - left} of {len(unique)} runs are finished. The same command goes on from here."
        )
    return [record for spec in specs if (record := found[spec.digest()]) is not None]


def _merged(failures: list[str]) -> list[str]:
    """Each reason once, with the runs that failed for it."""
    runs: dict[str, list[str]] = {}
    for failure in failures:
        run, _, reason = failure.partition(" failed: ")
        runs.setdefault(reason, []).append(run)
    return [f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)} failed: {r}" for r, names in runs.items()]


class UnfinishedError(CreditscopeError):
    """The time was over before the runs were."""


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _only_in_this_process(spec: RunSpec) -> bool:
    """Whether the run uses something registered by a decorator in the caller's own code."""
    own_rule = ":" not in spec.rule and RULES.is_local(spec.rule)
    return own_rule or NETS.is_local(spec.net) or TASKS.is_local(spec.task)


def _run_here(specs: Sequence[RunSpec], root: Path, progress: Progress, failures: list[str], deadline: float) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker, so that the bits do not depend on the number of jobs
    try:
        _run_one_by_one(specs, root, progress, failures, deadline)
    finally:
        torch.set_num_threads(threads)


def _run_one_by_one(
    specs: Sequence[RunSpec], root: Path, progress: Progress, failures: list[str], deadline: float
) -> None:
    for spec in specs:
        try:
            outcome = record_run(
                spec,
                root,
                on_epoch=lambda done, loss, spec=spec: progress.epoch(spec, done, loss),
                should_stop=lambda: time.monotonic() >= deadline,
            )
            progress.end_run(spec, outcome)
        except StoppedError:
            return
        except Exception as error:
            reason = str(error) if isinstance(error, CreditscopeError) else traceback.format_exc()
            failures.append(f"Run {spec.name()} failed: {reason}")
            progress.end_run(spec, "failed")


def _run_in_workers(
    specs: Sequence[RunSpec], root: Path, progress: Progress, failures: list[str], deadline: float, count: int
) -> None:
    todo: queue.SimpleQueue[RunSpec] = queue.SimpleQueue()
    for spec in specs:
        todo.put(spec)
    stopping = threading.Event()
    workers = [_Worker(root, todo, progress, failures, stopping) for _ in range(count)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join(None if deadline == math.inf else max(deadline - time.monotonic(), 0))
        _stop(workers, stopping)
    except KeyboardInterrupt:
        print("stopping at the end of the epoch; Ctrl-C again stops at once", file=sys.stderr, flush=True)
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
    """A thread that feeds one worker process and listens to it; a process that dies costs its run alone."""

    def __init__(
        self,
        root: Path,
        todo: "queue.SimpleQueue[RunSpec]",
        progress: Progress,
        failures: list[str],
        stopping: threading.Event,
    ):
        super().__init__(daemon=True)
        self.root, self.todo, self.progress, self.failures, self.stopping = root, todo, progress, failures, stopping
        self.process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                spec = self.todo.get_nowait()
            except queue.Empty:
                break
            outcome = self._train(spec)
            if not self.stopping.is_set():
                self.progress.end_run(spec, outcome)
        self._reap()

    def interrupt(self) -> None:
        """Ask the process to stop at the end of its epoch; the thread notices, and reaps it."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None:
            self.process.kill()

    def _train(self, spec: RunSpec) -> str:
        process = self.process = self.process or self._launch()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps(asdict(spec)) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died; reading finds the end
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "epoch":
                self.progress.epoch(spec, event["done"], event["loss"])
            elif event["event"] == "end":
                return event["outcome"]
            else:
                self.failures.append(f"Run {spec.name()} failed: {event['reason']}")
                return "failed"
        process.wait()
        code = self._reap()
        if not self.stopping.is_set():
            self.failures.append(f"Run {spec.name()} failed: its worker ended with exit code {code}.")
        return "failed"

    def _launch(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "creditscope.train.worker", str(self.root)],
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
