"""Kills: of a worker, of the driver; two drivers at once; what is left afterwards."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from documents import ROOT
from stacking import LONG, ODD_RULES, same_bytes, small_specs, train_on

from creditscope import TapRule
from creditscope.record import load_records
from creditscope.train.events import Ended, Event, Started
from creditscope.train.execute import execute, run_all
from creditscope.train.status import read_status
from creditscope.train.training import CHECKPOINT
from creditscope.train.work import find_work

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs signals")]

DRIVE = """
import sys
sys.path[:0] = sys.argv[4:]
from stacking import small_specs
from creditscope.train.execute import execute
specs = [s for seed in range(1, 5) for s in small_specs(int(sys.argv[2]), seed=seed, snapshot_every=1)]
for event in execute(specs, sys.argv[1], slots=int(sys.argv[3]), device="cpu", engine="loop"):
    print(type(event).__name__, getattr(event, "run", ""), flush=True)
"""


def drive(root: Path, epochs: int, slots: int, said: int = subprocess.PIPE) -> "subprocess.Popen[str]":
    paths = [str(ROOT / "tests" / "train"), str(ROOT / "tests")]
    words = [sys.executable, "-c", DRIVE, str(root), str(epochs), str(slots), *paths]
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what is started in the background ignores it
    return subprocess.Popen(words, stdout=said, stderr=subprocess.DEVNULL, text=True, preexec_fn=heed)


def eventually(is_so: Callable[[], object], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(is_so())


def long_runs(root: Path) -> "tuple[subprocess.Popen[str], list[psutil.Process]]":
    """A driver in the middle of its work, and all processes that it has started."""
    driver = drive(root, LONG, 2, subprocess.DEVNULL)
    assert eventually(lambda: root.exists() and len([t for t in read_status(root).training if t.epoch]) == 2)
    return driver, psutil.Process(driver.pid).children(recursive=True)


def gone(processes: list[psutil.Process]) -> bool:
    return all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -2), (signal.SIGKILL, -9)], ids=["TERM", "INT", "KILL"]
)
def test_nothing_outlives_the_driver_and_checkpoints_are_left(tmp_path, number, code):
    driver, others = long_runs(tmp_path)
    assert len(others) >= 2
    driver.send_signal(number)
    assert driver.wait(timeout=15) == code
    assert eventually(lambda: gone(others), 15)
    left = [folder for folder in tmp_path.iterdir() if (folder / CHECKPOINT).exists()]
    assert len(left) == (0 if number == signal.SIGKILL else 2)
    assert (tmp_path / ".work").exists() == (number == signal.SIGKILL)


def test_cancel_ends_a_driver_of_another_process(tmp_path):
    driver, others = long_runs(tmp_path)
    (work,) = find_work(tmp_path)
    work.cancel()
    assert driver.wait(timeout=15) == 0
    assert eventually(lambda: gone(others), 15)
    assert len([folder for folder in tmp_path.iterdir() if (folder / CHECKPOINT).exists()]) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
def test_a_worker_that_is_killed_costs_nothing(tmp_path, number):
    specs = [spec for seed in (1, 2, 3) for spec in small_specs(30, seed=seed, snapshot_every=10)]
    killed: list[int] = []
    ended: list[str] = []
    for event in execute(specs, tmp_path / "killed", slots=2, device="cpu", engine="loop"):
        if isinstance(event, Started) and not killed:
            killed.append(event.process)
            os.kill(event.process, number)
        if isinstance(event, Ended):
            ended.append(event.status)
    assert (len(killed), ended) == (1, ["complete"] * 3)
    train_on(specs, tmp_path / "whole", engine="loop")
    assert same_bytes(specs, tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize("slots", [1, 2])
def test_two_drivers_train_no_run_twice(tmp_path, slots):
    drivers = [drive(tmp_path, 20, slots) for _ in range(2)]
    told = [driver.communicate(timeout=120)[0].splitlines() for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0]
    assert [sum(line.startswith("Recorded") for line in lines) for lines in told if "Epoch" in str(lines)] != []
    assert sum(line.startswith("Epoch") for lines in told for line in lines) == 4 * 20
    assert len(load_records(tmp_path)) == 4
    assert not (tmp_path / ".work").exists()


class Halved(TapRule):
    """Defined here, so that workers know nothing of it."""

    def credit(self, ctx):
        return [0.5 * h for h in ctx.states]


def test_a_rule_of_the_caller_s_own_is_trained_by_workers_with_the_same_bytes(tmp_path, launched):
    from creditscope.registry import RULES

    name = RULES.name_of(Halved)
    specs = [spec for seed in (1, 2) for spec in small_specs(2, rule=name, seed=seed)]
    run_all(specs, tmp_path / "workers", slots=2, device="cpu", engine="loop")
    assert len(launched) == 2
    run_all(specs, tmp_path / "here", slots=1, device="cpu", engine="loop")
    assert same_bytes(specs, tmp_path / "workers", tmp_path / "here")


def test_a_run_that_always_kills_its_worker_is_named_while_others_finish(tmp_path):
    good = [spec for seed in (1, 2) for spec in small_specs(2, seed=seed)]
    (bad,) = small_specs(2, rule=f"{ODD_RULES}:Dies")
    told: list[Event] = list(execute([*good, bad], tmp_path, slots=2, tries=2, device="cpu", engine="loop"))
    reasons = {event.run: event.reason for event in told if isinstance(event, Ended) and event.status == "failed"}
    assert list(reasons) == [bad.digest()]
    assert ("2 times" in reasons[bad.digest()], "(9)" in reasons[bad.digest()]) == (True, True)
    assert len(load_records(tmp_path, problems=[])) == 2
