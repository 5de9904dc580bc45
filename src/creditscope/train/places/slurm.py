"""Slurm: jobs of an array, each of which trains its share of the groups by the local engine.

Slurm hands out whole GPUs and an import takes seconds, so a job takes many groups. Jobs go on when their driver ends.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from creditscope.errors import CreditscopeError
from creditscope.record.files import first_words
from creditscope.train import job as jobs
from creditscope.train.device import available_cores
from creditscope.train.drive import Driver
from creditscope.train.events import EngineEvent
from creditscope.train.job import Job, do_job, read_job
from creditscope.train.places import Slot, import_extra
from creditscope.train.places.here import Here
from creditscope.train.stopping import Stopping
from creditscope.train.training import StoppedError
from creditscope.train.work import JOBS, working

LOOK = 1.0  # seconds between two looks at results, and the time in which slots that are given work make one array
LOOK_AT_QUEUE = 5.0  # and at the queue, which is everybody's
MINUTES = 60  # of a job, after which it is queued again and goes on
TIMES = 10_000  # that it is


class Slurm:
    """So many jobs (by default one a node of the partition), as submitit sends them; `settings` are its parameters."""

    name, outlives, whole = "slurm", True, True

    def __init__(self, *, device: str, slots: int | None, **settings: Any):
        self.submitit = import_extra("submitit", "slurm")
        if shutil.which("sbatch") is None:
            raise CreditscopeError(
                "Expected Slurm's commands on the PATH, but got no sbatch. Call from a host that submits jobs."
            )
        asks_gpu = any("gpu" in f"{name}={value}" for name, value in settings.items())
        self.device = torch.device(("cuda" if asks_gpu else "cpu") if device == "auto" else device)
        if self.device.type == "cuda" and not asks_gpu:
            settings["gpus_per_node"] = 1
        self.settings = {"time": MINUTES, "job_name": "creditscope"} | {n: _number(v) for n, v in settings.items()}
        if not isinstance(self.settings["time"], int):
            raise CreditscopeError(f"Expected slurm.time in whole minutes, but got {settings['time']!r}.")
        self._executor(Path())  # refuses others
        self.count = slots or _nodes(settings.get("partition"))
        self._new: list[tuple[str, Future[Any]]] = []
        self._sent: list[tuple[Any, Future[Any]]] = []
        self._over, self._lock = threading.Event(), threading.Lock()

    def open(self, count: int) -> list[Slot]:
        self._open = {_Job(self) for _ in range(count)}
        if count:
            threading.Thread(target=self._watch, daemon=True).start()
        return list(self._open)

    def add(self, text: str) -> "Future[Any]":
        future: Future[Any] = Future()
        with self._lock:
            self._new.append((text, future))
        return future

    def close(self, slot: "_Job") -> None:
        """Nobody waits for it any more; what runs goes on."""
        self._open.discard(slot)
        if not self._open:
            self._over.set()

    def _executor(self, folder: Path) -> Any:
        executor = self.submitit.SlurmExecutor(folder, max_num_timeout=TIMES)
        try:
            executor.update_parameters(**self.settings)
        except (TypeError, ValueError) as error:
            known = ", ".join(re.findall(r"- (\w+) \(", str(error)))
            said = str(error).splitlines()[0]
            raise CreditscopeError(f"Expected settings that submitit has ({known}), but got: {said}.") from error
        return executor

    def _watch(self) -> None:
        """Send what is new, and look what has become of what was sent."""
        looked_at, missing = 0.0, set[str]()
        while not self._over.wait(LOOK):
            with self._lock:
                new, self._new = self._new, []
            if new:
                self._send(new)
            for sent, future in self._sent:
                if not future.done() and sent.paths.result_pickle.exists():
                    _settle(sent, future)
            self._sent = [(sent, future) for sent, future in self._sent if not future.done()]
            if self._sent and time.monotonic() - looked_at > LOOK_AT_QUEUE:
                looked_at, queued = time.monotonic(), _queue()
                gone = {sent.job_id for sent, _ in self._sent if queued is not None and sent.job_id not in queued}
                for sent, future in self._sent:
                    if sent.job_id in gone & missing and not sent.paths.result_pickle.exists():
                        future.set_exception(RuntimeError(_last_words(sent)))
                missing = gone  # twice, because a result may be slow to be seen

    def _send(self, new: "list[tuple[str, Future[Any]]]") -> None:
        """All as one array; their ids are left where `creditscope cancel` finds them."""
        try:
            work = read_job(new[0][0]).work
            executor = self._executor(work.folder / "slurm")
            with executor.batch():
                sent = [executor.submit(Share(text)) for text, _ in new]
            with open(work.folder / JOBS, "a") as file:
                file.writelines(f"{job.job_id}\n" for job in sent)
            self._sent += [(job, future) for job, (_, future) in zip(sent, new, strict=True)]
        except Exception as error:
            why = f"Expected Slurm to take jobs, but got: {first_words(error)} Look at --set slurm.NAME=VALUE."
            for _, future in new:
                future.set_result({"refused": why})


make_place = Slurm


class _Job:
    """Room for one job."""

    def __init__(self, place: Slurm):
        self.place = place

    def submit(self, function: Any, text: str) -> "Future[Any]":
        return self.place.add(text)

    def renew(self) -> None: ...

    def close(self) -> None:
        self.place.close(self)


class Share:
    """What a job does. It is called anew when Slurm has queued the job again, and goes on from checkpoints."""

    def __init__(self, text: str):
        self.text = text

    def __call__(self) -> dict[str, Any]:
        """In a thread, so that signals find the main one free: SIGTERM ends the step, and the job without a result."""
        signal.signal(signal.SIGTERM, lambda number, _: jobs.asked.append(number))
        job = read_job(self.text)
        with ThreadPoolExecutor(1) as thread:
            self._doing = thread.submit(do_job, job, lambda root, stop: train_share(job, root, stop))
            result = self._doing.result()
        if jobs.asked:
            sys.exit(128 + jobs.asked[0])
        return result

    def checkpoint(self) -> Any:
        """Its time is nearly over: the step ends, and it is queued again."""
        from submitit.helpers import DelayedSubmission

        jobs.asked.append(signal.SIGUSR2)
        self._doing.exception()
        return DelayedSubmission(Share(self.text))


def train_share(job: Job, root: Path, should_stop: Callable[[], bool]) -> Iterator[EngineEvent]:
    """Train a job's groups by workers of this host, as many as the job has cores."""
    # Slurm's word to a job goes to all its processes; those that are launched from this thread do not hear it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    cores = min(int(os.environ.get("SLURM_CPUS_ON_NODE", available_cores())), available_cores())
    here = Here(device=job.device, slots=cores if job.device == "cpu" else None)
    stopping = Stopping()
    stopping.told = should_stop
    runs = [spec.name() for spec in job.specs]
    slots = here.open(min(here.count, len(job.groups)))
    with stopping.listening(), working(root, job.work.place, runs) as work:
        driver = Driver(job.groups, work, device=here.device, stopping=stopping, tries=job.tries)
        with closing(driver.train_at(here, slots, defined=job.defined)) as told:
            yield from told
    if should_stop():
        raise StoppedError


def _settle(sent: Any, future: "Future[Any]") -> None:
    try:
        future.set_result(sent.result())
    except Exception as error:
        future.set_exception(error)


def _last_words(sent: Any) -> str:
    """Of a job that ended without a result."""
    said = (sent.stderr() or "").strip().splitlines()
    return f"Slurm's job {sent.job_id} ended without a result{f': {said[-1]}' if said else ''}"


def _queue() -> set[str] | None:
    """The jobs of this user that wait or run; None if Slurm does not say."""
    asked = ["squeue", "--me", "--array", "--noheader", "--format=%i"]
    done = subprocess.run(asked, capture_output=True, text=True)
    return set(done.stdout.split()) if done.returncode == 0 else None


def _nodes(partition: str | None) -> int:
    """Nodes of a partition, or of the default one."""
    asked = ["sinfo", "--noheader", "--format=%D %P", *([f"--partition={partition}"] if partition else [])]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode:
        raise CreditscopeError(f"Expected Slurm to answer, but got: {done.stderr.strip()} Give --slots, or try later.")
    told = [line.split() for line in done.stdout.splitlines()]
    return sum(int(nodes) for nodes, name in told if partition or name.endswith("*")) or 1


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value
