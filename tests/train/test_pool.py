"""How many workers share a GPU, which group each takes next, and what becomes of runs that find no memory on it."""

from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
import torch

from creditscope.errors import CreditscopeError
from creditscope.train import pool
from creditscope.train.events import Ended
from creditscope.train.execute import run_all
from creditscope.train.groups import RunGroup
from creditscope.train.plan import plan_run
from creditscope.train.pool import Stopping

pytestmark = pytest.mark.slow

TINY = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "epochs": 1, "tier": "quick", "noise": False}
RULE = """
from pathlib import Path

import torch

from creditscope import TapRule


class Crowded(TapRule):
    def __init__(self, *, times: int = 1):
        self.times = times

    def credit(self, ctx):
        tried = Path(__file__).with_suffix(".tried")
        before = len(tried.read_text()) if tried.exists() else 0
        if before < self.times:
            tried.write_text("x" * (before + 1))
            raise torch.OutOfMemoryError("no room")
        return [ctx.error @ torch.ones(ctx.error.shape[-1], h.shape[-1]) for h in ctx.states]
"""


def make_groups(count: int) -> list[RunGroup]:
    return [RunGroup((plan_run(task="digits", seed=seed),), "stacked") for seed in range(count)]


class TestTodo:
    def test_groups_are_taken_once_from_either_end(self):
        groups = make_groups(4)
        todo = pool.Todo(groups, 2)
        taken = [todo.take(last=last) for last in (False, True, False, True)]
        assert [groups.index(group) for group in taken if group] == [0, 3, 1, 2]
        assert todo.take(last=False) is None
        assert todo.take(last=True) is None

    def test_a_worker_without_groups_goes(self):
        todo = pool.Todo(make_groups(1), 2)
        todo.take(last=False)
        assert not todo.alone
        assert todo.take(last=False) is None
        assert todo.alone

    def test_a_group_given_back_is_the_next_and_its_worker_gone(self):
        groups = make_groups(2)
        todo = pool.Todo(groups, 2)
        first = todo.take(last=False)
        assert first is not None
        assert todo.give_back(first)
        assert todo.alone
        assert todo.take(last=False) is first

    def test_the_last_worker_cannot_give_back(self):
        (group,) = make_groups(1)
        todo = pool.Todo([group], 1)
        assert todo.take(last=False) is group
        assert not todo.give_back(group)
        assert todo.take(last=False) is None


@pytest.mark.parametrize(
    ("cores", "gibibytes", "expected"), [(16, 139, 16), (64, 139, 16), (8, 139, 8), (16, 24, 3), (16, 4, 1)]
)
def test_workers_by_cores_and_memory(monkeypatch, cores, gibibytes, expected):
    monkeypatch.setattr(pool, "available_cores", lambda: cores)
    properties = SimpleNamespace(total_memory=gibibytes * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert pool.choose_jobs(torch.device("cuda")) == expected
    assert pool.choose_jobs(torch.device("cpu")) == cores


class TestWorker:
    """The thread that feeds a process, with the process left out."""

    def worker(self, workers: int = 1):
        stopping, events = Stopping(), SimpleQueue()
        todo = pool.Todo(make_groups(1), workers)
        return pool._Worker(Path(), torch.device("cpu"), todo, False, events, stopping), stopping, events

    def test_what_found_no_memory_is_not_tried_again_once_it_shall_stop(self, monkeypatch):
        worker, stopping, events = self.worker()
        tried = []

        def train(group):
            tried.append(group)
            stopping.given_up = True
            return group

        monkeypatch.setattr(worker, "_train", train)
        worker.run()
        assert (len(tried), events.get(), events.empty()) == (1, None, True)

    def test_a_process_that_was_being_launched_when_all_shall_stop_is_asked_to(self, monkeypatch):
        worker, stopping, events = self.worker()
        launch = pool._launch

        def launch_late(root, device):
            process = launch(root, device)
            stopping.given_up = True
            worker.interrupt()  # comes before the thread knows its process
            return process

        monkeypatch.setattr(pool, "_launch", launch_late)
        worker.run()
        assert worker.process is None
        assert [event for event in iter(events.get, None) if isinstance(event, Ended)] == []


def train_crowded(folder, *, times: int, runs: int, jobs: int = 2):
    path = folder / "crowded.py"
    path.write_text(RULE)
    rule = {"rule": f"{path}:Crowded", "rule_options": {"times": times}}
    specs = [plan_run(**TINY, **rule, seed=seed) for seed in range(runs)]
    return run_all(specs, folder / "records", jobs=jobs, device="cpu")


def test_a_run_that_finds_no_memory_is_left_to_the_other_workers(tmp_path):
    records = train_crowded(tmp_path, times=1, runs=2)
    assert [record.provenance.status for record in records] == ["complete", "complete"]
    assert (tmp_path / "crowded.tried").read_text() == "x"


def test_a_run_that_finds_no_memory_even_alone_fails_and_says_so(tmp_path):
    with pytest.raises(CreditscopeError, match=r"1 more.*memory on cpu"):
        train_crowded(tmp_path, times=99, runs=2)
