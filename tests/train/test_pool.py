"""Workers: how many share a GPU, which group each takes next, what becomes of runs without memory, what ends them."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
import torch
from builders import run_python
from stacking import ODD_RULES, SMALL

from creditscope.errors import CreditscopeError
from creditscope.train import pool
from creditscope.train.events import Ended
from creditscope.train.execute import run_all
from creditscope.train.groups import RunGroup
from creditscope.train.plan import plan_run
from creditscope.train.pool import Stopping

pytestmark = pytest.mark.slow

TINY = SMALL | {"epochs": 1, "noise": False}


def make_groups(count: int) -> list[RunGroup]:
    return [RunGroup((plan_run(task="digits", seed=seed),), "stacked") for seed in range(count)]


class TestTodo:
    def test_groups_are_taken_once_from_either_end_and_a_worker_without_goes(self):
        groups = make_groups(4)
        todo = pool.Todo(groups, 2)
        taken = [todo.take(last=last) for last in (False, True, False, True)]
        assert [groups.index(group) for group in taken if group] == [0, 3, 1, 2]
        assert not todo.alone
        assert todo.take(last=False) is None
        assert todo.alone

    def test_a_group_given_back_is_the_next_and_its_worker_gone_unless_it_is_the_last(self):
        todo = pool.Todo(make_groups(2), 2)
        first = todo.take(last=False)
        assert todo.give_back(first)
        assert todo.alone
        assert todo.take(last=False) is first
        assert not todo.give_back(first)
        assert todo.take(last=True) is not first
        assert todo.take(last=True) is None


@pytest.mark.parametrize(
    ("cores", "gibibytes", "expected"), [(16, 139, 16), (64, 139, 16), (8, 139, 8), (16, 24, 3), (16, 4, 1)]
)
def test_workers_by_cores_and_memory(monkeypatch, cores, gibibytes, expected):
    monkeypatch.setattr(pool, "available_cores", lambda: cores)
    properties = SimpleNamespace(total_memory=gibibytes * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert pool.choose_jobs(torch.device("cuda")) == expected
    assert pool.choose_jobs(torch.device("cpu")) == cores


class TestStopping:
    """Signals are counted; where one may raise, it does so once."""

    @pytest.fixture(autouse=True)
    def as_at_a_prompt(self):
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    def test_none_raises_and_others_are_asked_once_then_ended(self):
        stopping, asked = Stopping(), SimpleQueue()
        stopping.ask = lambda: asked.put(stopping.at_once)
        with stopping.listening():
            signal.raise_signal(signal.SIGINT)
            assert (asked.get(timeout=60), stopping(), stopping.at_once) == (False, True, False)
            signal.raise_signal(signal.SIGTERM)
            assert (asked.get(timeout=60), stopping.at_once) == (True, True)
            for _ in range(20):
                signal.raise_signal(signal.SIGINT)
        assert (stopping.presses, asked.empty()) == (22, True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    @pytest.mark.parametrize(
        ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["Ctrl-C", "TERM"]
    )
    def test_one_raises_where_it_may_and_none_after_it(self, number, raised):
        stopping, cleaned = Stopping(), []

        def train() -> None:
            signal.raise_signal(number)
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(number)
                cleaned.append(True)

        with stopping.listening(), pytest.raises(raised) as found, stopping.interruptible(presses=2):
            train()
        assert (cleaned, stopping.presses) == ([True], 3)
        assert getattr(found.value, "code", 143) == 143

    def test_what_came_before_raises_where_it_may(self):
        stopping = Stopping()
        with stopping.listening():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt), stopping.interruptible(presses=1):
                pytest.fail("went on")

    def test_a_time_limit_asks_even_if_nobody_listens(self):
        stopping, asked = Stopping(), SimpleQueue()
        stopping.ask = lambda: asked.put(stopping.at_once)
        with stopping.listening():
            stopping.limit(0.01)
            assert asked.get(timeout=60) is False

    def test_a_handler_of_the_caller_s_own_for_sigterm_is_left(self):
        signal.signal(signal.SIGTERM, own := lambda *_: None)
        with Stopping().listening():
            assert signal.getsignal(signal.SIGTERM) is own


def test_a_worker_whose_parent_is_gone_ends(tmp_path):
    command = [sys.executable, *pool.WORKER, str(tmp_path), "cpu", "0"]  # nobody's child
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.wait(timeout=120) == 1


OWN = """
from helper import scale
from creditscope import TapRule

class Mine(TapRule):
    def credit(self, ctx):
        return [scale * h for h in ctx.states]
"""


def test_workers_run_no_file_of_the_current_folder_but_the_rule_that_was_named(tmp_path):
    """A module that lies beside downloaded records is not taken for the one of that name; a rule's own helper is."""
    for name in ("safetensors", "numpy", "pydantic", "random"):
        (tmp_path / f"{name}.py").write_text("open('was run', 'w')\nraise SystemExit(3)\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").write_text(OWN)
    (tmp_path / "own" / "helper.py").write_text("scale = 0.5\n")
    words = ["run", "--task", "digits", "--width", "8", "--depth", "1", "--epochs", "1", "--seeds", "2", "--jobs", "2"]
    words += ["--rule", "own/mine.py:Mine", "--tier", "quick", "--quiet", "--json"]
    code = f"from creditscope.cli import main; main({words})"
    said = run_python("-P", "-c", code, cwd=tmp_path)
    assert json.loads(said)["methods"][0]["seeds"] == [42, 123]
    assert not (tmp_path / "was run").exists()


class TestWorker:
    """The thread that feeds a process, with the process left out."""

    def worker(self):
        stopping, events, todo = Stopping(), SimpleQueue(), pool.Todo(make_groups(1), 1)
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


def train_crowded(folder, *, times: int):
    rule = {"rule": f"{ODD_RULES}:Crowded", "rule_options": {"folder": str(folder), "times": times}}
    specs = [plan_run(**TINY, **rule, seed=seed) for seed in range(2)]
    return run_all(specs, folder / "records", jobs=2, device="cpu")


def test_a_run_that_finds_no_memory_is_left_to_the_other_workers(tmp_path):
    records = train_crowded(tmp_path, times=1)
    assert [record.provenance.status for record in records] == ["complete", "complete"]
    assert (tmp_path / "tried").read_text() == "x"


def test_a_run_that_finds_no_memory_even_alone_fails_and_says_so(tmp_path):
    with pytest.raises(CreditscopeError, match=r"1 more.*memory on cpu"):
        train_crowded(tmp_path, times=99)
