"""The driver's loop against executors that lose jobs, refuse, live elsewhere, or are killed by a run."""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from stacking import SMALL, read, same_bytes, small_specs, train_on

from creditscope.errors import CreditscopeError
from creditscope.record import RecordWriter, RunSpec, run_folder
from creditscope.record.files import digest
from creditscope.record.stored import bring_home
from creditscope.train import job
from creditscope.train.events import Ended, Event, Note, Recorded, Started, to_line
from creditscope.train.execute import execute, run_all
from creditscope.train.job import train_job
from creditscope.train.plan import plan_run

pytestmark = pytest.mark.slow

Act = Callable[[int, dict[str, Any]], Any]


class Worker:
    """An executor that does a job at once, as `act` says: given how many there were before, and the job."""

    def __init__(self, act: Act):
        self.act, self.given = act, list[list[int]]()

    def submit(self, function: Callable[[str], Any], text: str) -> "Future[Any]":
        assert function is train_job
        job, future = json.loads(text), Future[Any]()
        self.given.append([spec["seed"] for group in job["groups"] for spec in group["specs"]])
        try:
            future.set_result(self.act(len(self.given), job))
        except Exception as error:
            future.set_exception(error)
        return future


def do(job: dict[str, Any]) -> Any:
    return train_job(json.dumps(job))


def elsewhere(folder: Path) -> Act:
    """Where the driver's folder is not seen."""
    return lambda _, job: do({**job, "work": {**job["work"], "root": str(folder)}})


def specs_of(*seeds: int, epochs: int = 3) -> list[RunSpec]:
    return [spec for seed in seeds for spec in small_specs(epochs, seed=seed)]


def train(specs: list[RunSpec], root: Path, act: Act, **how: Any) -> tuple[Worker, list[Event]]:
    worker = Worker(act)
    return worker, list(execute(specs, root, on=worker, **{"slots": 1, "device": "cpu", "engine": "loop", **how}))


def ends(events: list[Event]) -> list[str]:
    return [event.status for event in events if isinstance(event, Ended)]


@pytest.mark.parametrize("after", [False, True], ids=["before it began", "with its result"])
def test_a_lost_job_goes_to_the_front_and_nothing_is_lost_or_doubled(tmp_path, after):
    specs = specs_of(1, 2, 3)

    def drop(number: int, job: dict[str, Any]) -> Any:
        result = do(job) if after or number % 2 == 0 else None
        if number % 2:
            raise ConnectionError("gone")
        return result

    worker, events = train(specs, tmp_path / "lossy", drop)
    given = [[1], [2], [3]] if after else [[1], [1], [2], [2], [3], [3]]  # what has ended was told before
    assert worker.given == given
    assert ends(events) == ["complete"] * 3
    train_on(specs, tmp_path / "whole", engine="loop")
    assert same_bytes(specs, tmp_path / "lossy", tmp_path / "whole")
    assert not (tmp_path / "lossy" / ".work").exists()


def test_records_of_another_folder_come_home(tmp_path):
    specs = specs_of(1, 2)
    _, events = train(specs, tmp_path / "home", elsewhere(tmp_path / "away"))
    assert [event.record.spec for event in events if isinstance(event, Recorded)] == specs
    assert not (tmp_path / "away").exists()
    train_on(specs, tmp_path / "whole", engine="loop")
    assert same_bytes(specs, tmp_path / "home", tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == sorted(spec.name() for spec in specs)


def test_files_that_were_altered_on_their_way_are_not_stored(tmp_path):
    (spec,) = specs_of(1)

    def alter(number: int, job: dict[str, Any]) -> Any:
        result = elsewhere(tmp_path / "away")(number, job)
        if number == 1:
            files = result["files"][spec.digest()]
            files["snapshots.jsonl"] = files["snapshots.jsonl"].replace(b"0", b"1", 1)
        return result

    worker, events = train([spec], tmp_path, alter)
    assert (worker.given, ends(events)) == ([[1], [1]], ["complete"])
    assert read(tmp_path, spec).seal == "fits"


def test_what_comes_home_does_not_replace_a_finished_record(tmp_path):
    (spec,) = specs_of(1)
    train_on([spec], tmp_path, engine="loop")
    folder = run_folder(tmp_path, spec)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = {name: content + b" " for name, content in files.items()}
    bring_home(tmp_path, spec, other, {name: digest(content) for name, content in other.items()}, tmp_path / ".work")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


@pytest.mark.parametrize("tries", [1, 3])
def test_of_a_stack_the_run_that_kills_every_worker_is_named_and_the_others_end(tmp_path, tries):
    specs = [plan_run(**SMALL | {"epochs": 1, "snapshot_every": 0}, seed=seed) for seed in range(1, 7)]

    def dies(number: int, job: dict[str, Any]) -> Any:
        if any(spec["seed"] == 5 for group in job["groups"] for spec in group["specs"]):
            raise ConnectionError("killed")
        return do(job)

    worker, events = train(specs, tmp_path, dies, engine="stacked", tries=tries)
    failed = [event for event in events if isinstance(event, Ended) and event.status == "failed"]
    assert [event.run for event in failed] == [specs[4].digest()]
    assert failed[0].reason.count("killed") == 1
    assert worker.given.count([5]) == tries
    assert sorted(ends(events)) == ["complete"] * 5 + ["failed"]
    assert (run_folder(tmp_path, specs[4]) / "failure.txt").exists() is False  # it never had a folder


def other_torch(number: int, job: dict[str, Any]) -> Any:
    return do({**job, "versions": {**job["versions"], "torch": "1.0"}})


def test_a_host_with_another_torch_is_refused_before_training_and_not_asked_again(tmp_path):
    worker = Worker(other_torch)
    with pytest.raises(CreditscopeError, match=r"and 2 more failed: Expected torch 1\.0.* host ") as caught:
        run_all(specs_of(1, 2, 3), tmp_path, on=worker, slots=1, device="cpu", engine="loop")
    assert (len(worker.given), str(caught.value).count("Run ")) == (1, 1)
    assert list(tmp_path.iterdir()) == []


def test_one_host_that_refuses_leaves_its_runs_to_the_others(tmp_path):
    _, events = train(
        specs_of(1, 2), tmp_path, lambda n, job: (other_torch if n == 1 else lambda _, j: do(j))(n, job), slots=2
    )
    assert ends(events) == ["complete"] * 2
    assert [event.text.startswith("Expected torch 1.0") for event in events if isinstance(event, Note)] == [True]


def test_a_host_without_the_data_is_refused(tmp_path, monkeypatch):
    def missing(name: str, **options: object) -> None:
        raise CreditscopeError(f"Expected data of {name}, but got none.")

    monkeypatch.setattr(job, "load_task", missing)
    _, events = train(specs_of(1, 2), tmp_path, lambda _, job: do(job))
    reasons = {event.reason for event in events if isinstance(event, Ended)}
    assert ends(events) == ["failed"] * 2
    assert [socket.gethostname() in reason and "data of digits" in reason for reason in reasons] == [True]


def test_another_cpu_is_told_once(tmp_path):
    def other(number: int, job: dict[str, Any]) -> Any:
        return do({**job, "versions": {**job["versions"], "cpu": "x86_64 OLD"}})

    _, events = train(specs_of(1, 2), tmp_path, other)
    assert sum(isinstance(event, Note) and "OLD" in event.text for event in events) == 1


def test_a_run_that_another_trains_is_waited_for_and_read(tmp_path):
    """Others first; when it is let go unfinished, it is trained."""
    specs, order = specs_of(1, 2), []
    with RecordWriter(tmp_path, specs[0]).open() as writer:
        for event in execute(specs, tmp_path, slots=1, device="cpu", engine="loop"):
            if isinstance(event, Ended):
                order.append(event.run)
                if len(order) == 1:
                    (writer.folder / "lock").unlink()  # as if its writer had gone
    assert order == [specs[1].digest(), specs[0].digest()]


def test_an_executor_that_never_answers_is_left_at_the_second_signal(tmp_path):
    class Mute:
        def submit(self, function: object, text: str) -> "Future[Any]":
            return Future()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presses = [threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)) for after in (0.5, 1.0)]
    try:
        for press in presses:
            press.start()
        with pytest.raises(KeyboardInterrupt):
            run_all(specs_of(1, 2), tmp_path, on=Mute(), slots=2, device="cpu", engine="loop")
    finally:
        for press in presses:
            press.join()
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []


def test_runs_that_a_lost_worker_had_not_come_to_are_not_to_blame(tmp_path, monkeypatch):
    """A slot that takes all groups at once, as a job of Slurm does, whose first run kills it every time."""
    specs = specs_of(1, 2, 3, epochs=1)
    deadly = specs[0].digest()

    def act(_: int, job: dict[str, Any]) -> Any:
        if job["groups"][0]["specs"][0]["seed"] != 1:
            return do(job)
        with open(Path(job["work"]["root"], ".work", job["work"]["token"], f"{job['number']}.jsonl"), "a") as out:
            out.write(to_line(Started("far", 1, (deadly,))))
        raise RuntimeError("killed")

    monkeypatch.setattr("creditscope.train.places.Executor.whole", True)
    told = list(execute(specs, tmp_path, on=Worker(act), slots=1, tries=2, engine="loop"))
    assert [event.run for event in told if isinstance(event, Ended) and event.status == "failed"] == [deadly]
    assert sum(isinstance(event, Recorded) for event in told) == 2
