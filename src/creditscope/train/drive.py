"""The driver: gives groups of runs to slots, hears what becomes of them, and gives again what was lost."""

import os
import re
import threading
import time
from collections import deque
from collections.abc import Container, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from creditscope.record.files import first_words
from creditscope.record.locks import BusyError, is_being_written
from creditscope.record.spec import RunSpec
from creditscope.record.store import run_folder
from creditscope.record.stored import bring_home, status_of
from creditscope.train.events import BUSY, NO_MEMORY, Ended, EngineEvent, Note, Started, from_line, to_line
from creditscope.train.groups import RunGroup
from creditscope.train.job import Job, train_job
from creditscope.train.places import Place, Slot
from creditscope.train.stopping import LOOK, PATIENCE, Stopping
from creditscope.train.training import StoppedError, train_group
from creditscope.train.work import Tail, Work

LOOK_AGAIN = 1.0  # seconds between two looks at runs that others train
TRIES = 3
FROM_THE_END = 4
"""On a GPU every so many-th slot takes the last group that is left instead of the first: short runs keep a core busy
and long ones the device, so that they go well beside each other."""


@dataclass
class Attempt:
    """A group, how many workers died over it, and whether it was last given to a worker that had no other beside it."""

    group: RunGroup
    lost: int = 0
    alone: bool = False

    def of(self, runs: Container[str]) -> "Attempt | None":
        """The same with those of its runs that are among these."""
        specs = tuple(spec for spec in self.group.specs if spec.digest() in runs)
        return replace(self, group=RunGroup(specs, self.group.engine)) if specs else None


@dataclass
class Running:
    """What a slot was given, and what is left of it: runs that have not ended, and those that found no memory."""

    slot: Slot
    attempts: list[Attempt]
    future: "Future[Any]"
    tail: Tail
    left: dict[str, RunSpec]
    short: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)


class Driver:
    """Brings groups to their end, at a place or in this very process."""

    def __init__(
        self, groups: Sequence[RunGroup], work: Work, *, device: torch.device, stopping: Stopping, tries: int = TRIES
    ):
        self.work, self.device, self.stopping, self.tries = work, device, stopping, tries
        self.root = Path(work.root)
        self.todo = deque(Attempt(group) for group in groups)
        self.waiting: list[Attempt] = []  # runs that others train
        self.looked_at = 0.0
        self.running: list[Running] = []
        self.jobs = 0
        self.notes: set[EngineEvent] = set()  # what was told once is not told again
        self.bell = threading.Event()

    def train_here(self) -> Generator[EngineEvent, None, None]:
        """All groups in this process, one after the other."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as in a worker, so that the bits do not depend on the number of slots
        try:
            while self.todo or (self.waiting and not self.stopping()):
                if self.stopping.presses or self.stopping.given_up:  # at a time limit a run still takes a step
                    return
                if not self.todo:
                    time.sleep(LOOK)
                    yield from self._look_at_waiting()
                    continue
                attempt = self.todo.popleft()
                runs = tuple(spec.digest() for spec in attempt.group.specs)
                self._write(Started(self.work.host, os.getpid(), runs, str(self.device)))
                events = train_group(attempt.group, self.root, device=self.device, should_stop=self.stopping)
                while True:
                    with self.stopping.interruptible(presses=2):  # but not who reads the events: those may hold locks
                        event = next(events, None)
                    if event is None:
                        break
                    self._write(event)
                    if isinstance(event, Ended) and event.status == BUSY:
                        self._wait_for(attempt, event.run)
                    else:
                        yield event
        except StoppedError:
            return
        finally:
            torch.set_num_threads(threads)

    def _write(self, event: EngineEvent) -> None:
        """Keep an event for who looks from elsewhere; a disk that is full is the runs' to tell."""
        with suppress(OSError), open(self.work.events(1), "a", encoding="utf-8") as out:
            out.write(to_line(event))

    def train_at(self, place: Place, slots: Sequence[Slot], *, defined: str = "") -> Generator[EngineEvent, None, None]:
        """All groups in the slots of a place. If who listens goes, runs end their step and leave checkpoints."""
        self.place, self.slots, self.defined = place, list(slots), defined
        self.stopping.ask = self._ask
        if self.stopping():  # since before there was somebody to ask
            self._ask()
        try:
            while self.todo or self.running or self.waiting:
                if self.stopping():
                    self.todo.clear()
                    self.waiting.clear()
                    if place.outlives or self.stopping.at_once:
                        return
                    self._end_silent()
                self._give()
                self.bell.wait(LOOK)
                self.bell.clear()
                for running in list(self.running):
                    done = running.future.done()  # asked before its last events are read
                    for event in running.tail.read():
                        yield from self._take(running, event)
                    if done:
                        yield from self._end(running)
                yield from self._look_at_waiting()
        except BaseException:
            self.stopping.given_up = True
            raise
        finally:
            self._close()

    def _end_silent(self) -> None:
        """Workers that have said nothing yet have nothing to lose, or do not see our orders; at a time limit they are
        given a moment to begin."""
        asked = self.stopping.presses or self.stopping.given_up
        if asked or time.monotonic() - self.stopping.deadline > PATIENCE:
            for running in self.running:
                if not running.tail.at:
                    running.slot.close()

    def _ask(self) -> None:
        """Ask workers to stop, or end them."""
        if not self.place.outlives:
            self.work.stop()
            for slot in self.slots if self.stopping.at_once else ():
                slot.close()

    def _close(self) -> None:
        """Wait for workers that were asked to stop, not for ever, and end them all."""
        deadline = time.monotonic() + PATIENCE
        if not self.place.outlives:
            self.work.stop()
            while any(not r.future.done() for r in self.running) and time.monotonic() < deadline:
                if self.stopping.at_once:
                    break
                time.sleep(LOOK)
        for slot in self.slots:
            slot.close()

    def _give(self) -> None:
        """A group to every slot that is free, or its share of them."""
        taken = [running.slot for running in self.running]
        free = [(number, slot) for number, slot in enumerate(self.slots, start=1) if slot not in taken]
        for left, (number, slot) in zip(range(len(free), 0, -1), free, strict=True):
            if not self.todo:
                return
            take = self.todo.popleft
            if self.device.type == "cuda" and number % FROM_THE_END == 0:
                take = self.todo.pop
            if self.place.whole:  # long ones and short ones
                share = list(self.todo)[::left]
                self.todo = deque(attempt for i, attempt in enumerate(self.todo) if i % left)
                self._submit(slot, share)
            else:
                self._submit(slot, [take()])

    def _submit(self, slot: Slot, attempts: list[Attempt]) -> None:
        self.jobs += 1
        attempts = [replace(attempt, alone=len(self.slots) == 1) for attempt in attempts]
        groups = tuple(attempt.group for attempt in attempts)
        data = os.environ.get("CREDITSCOPE_DATA", "")
        job = Job(groups, self.work, self.jobs, str(self.device), data, self.defined, self.tries)
        try:
            future = slot.submit(train_job, job.to_text())
        except Exception as error:  # its worker died before it was given anything
            future = Future[Any]()
            future.set_exception(error)
        left = {spec.digest(): spec for spec in job.specs}
        self.running.append(Running(slot, attempts, future, Tail(self.work.events(self.jobs)), left))
        if hasattr(future, "add_done_callback"):
            future.add_done_callback(lambda _: self.bell.set())

    def _take(self, running: Running, event: EngineEvent) -> Iterator[EngineEvent]:
        """Pass on what a worker tells, but for what is ours to see to."""
        if isinstance(event, Started):
            running.begun |= {*event.runs}
        if not isinstance(event, Ended):
            if event not in self.notes:
                yield event
            if isinstance(event, Note):
                self.notes.add(event)
        elif event.run in running.left:
            del running.left[event.run]
            if event.status == BUSY:
                for attempt in running.attempts:
                    self._wait_for(attempt, event.run)
            elif event.status == NO_MEMORY:
                running.short.add(event.run)
            else:
                yield event

    def _end(self, running: Running) -> Iterator[EngineEvent]:
        """What becomes of a job's runs once it is over."""
        self.running.remove(running)
        try:
            result = running.future.result()
            for run, files in result.get("files", {}).items():
                try:
                    bring_home(self.root, running.left[run], files, result["digests"][run], self.work.folder)
                except BusyError:
                    yield from self._take(running, Ended(run, BUSY))
        except Exception as error:
            yield from self._lose(running, error)
            return
        finally:
            running.tail.path.unlink(missing_ok=True)
        if why := result.get("refused"):
            yield from self._refuse(running, why)
            return
        for line in result["lines"]:
            yield from self._take(running, from_line(line))
        if self.stopping():
            return
        if running.short:
            yield from self._make_room(running)
        if running.left:  # the worker was asked to stop, not by us: it will take no other job
            self._give_again(running)
            running.slot.renew()

    def _give_again(self, running: Running) -> None:
        again = [attempt.of(running.left) for attempt in running.attempts]
        self.todo.extendleft(reversed([attempt for attempt in again if attempt]))

    def _lose(self, running: Running, error: Exception) -> Iterator[EngineEvent]:
        """A worker died: its runs are the next to be given, in halves if it was not the first to die over them; one
        that kills every worker is set aside."""
        if self.stopping():
            return
        again: list[Attempt] = []
        for attempt in filter(None, [attempt.of(running.left) for attempt in running.attempts]):
            specs = attempt.group.specs
            blamed = not running.begun or any(spec.digest() in running.begun for spec in specs)
            lost = attempt.lost + blamed  # those that its worker had not come to are not to blame
            if not blamed:
                again.append(attempt)
            elif len(specs) == 1 and lost >= self.tries:
                times = "once" if lost == 1 else f"{lost} times"
                yield Ended(specs[0].digest(), "failed", f"its worker died {times}, the last time by {_how(error)}.")
            elif len(specs) > 1 and lost >= min(2, self.tries):
                half = len(specs) // 2
                again += [Attempt(RunGroup(part, attempt.group.engine)) for part in (specs[:half], specs[half:])]
            else:
                again.append(replace(attempt, lost=lost))
        self.todo.extendleft(reversed(again))
        running.slot.renew()

    def _make_room(self, running: Running) -> Iterator[EngineEvent]:
        """Runs without memory are left to the other slots, one less now; the last one tries them alone."""
        for attempt in filter(None, [attempt.of(running.short) for attempt in running.attempts]):
            if attempt.alone:
                reason = f"too little memory on {self.device}, with no other worker there. Try a smaller batch."
                yield from (Ended(spec.digest(), "failed", reason) for spec in attempt.group.specs)
            else:
                self.todo.appendleft(attempt)
        if len(self.slots) > 1:
            self._drop(running.slot)
        else:
            running.slot.renew()

    def _refuse(self, running: Running, why: str) -> Iterator[EngineEvent]:
        """A host that cannot train as we would gets nothing more; with none left, that is the end of all runs."""
        self._give_again(running)
        self._drop(running.slot)
        if self.slots:
            yield Note(why)
            return
        specs = [spec for attempt in (*self.todo, *self.waiting) for spec in attempt.group.specs]
        self.todo.clear()
        self.waiting.clear()
        yield from (Ended(spec.digest(), "failed", why) for spec in specs)

    def _drop(self, slot: Slot) -> None:
        self.slots.remove(slot)
        slot.close()

    def _wait_for(self, attempt: Attempt, run: str) -> None:
        """A run that somebody else trains is looked at now and then."""
        if waits := attempt.of({run}):
            self.waiting.append(waits)

    def _look_at_waiting(self) -> Iterator[EngineEvent]:
        """What others have ended is told of; what they have left, we train."""
        if time.monotonic() - self.looked_at < LOOK_AGAIN:
            return
        self.looked_at = time.monotonic()
        for attempt in list(self.waiting):
            (spec,) = attempt.group.specs
            if is_being_written(run_folder(self.root, spec)):
                continue
            self.waiting.remove(attempt)
            if (how := status_of(self.root, spec)) in ("complete", "diverged"):
                yield Ended(spec.digest(), how)
            else:
                self.todo.append(attempt)


def _how(error: Exception) -> str:
    """The exit code of a worker, if that is told, or the first line of the error."""
    code = re.search(r"exit codes of the workers are {(.+?)}", str(error))
    return code[1] if code else first_words(error)
