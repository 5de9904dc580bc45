"""Ray on this host alone, two CPUs: a cluster that we start and that ends with its driver; what is refused."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import runs
from runs import differing, train, twelve_runs

from creditscope.errors import CreditscopeError

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
]
LONG = 100_000


def drive(root: Path, epochs: int) -> tuple["subprocess.Popen[str]", dict[int, psutil.Process]]:
    """A driver on Ray whose runs have begun, and all its processes."""
    command = [sys.executable, runs.__file__, str(root), "ray", str(epochs)]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    end = time.monotonic() + 120
    while len(list(root.glob("*/snapshots.jsonl"))) < 2:
        assert driver.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    started = [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]
    return driver, {process.pid: process for process in started}


def still_there(processes: dict[int, psutil.Process], seconds: float = 15) -> list[psutil.Process]:
    """Those that are there after so long, or as soon as there is none."""
    end = time.monotonic() + seconds
    left = list(processes.values())
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left = [process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    return left


def test_records_are_those_of_here(tmp_path, by_here):
    specs = twelve_runs()
    records = train(specs, tmp_path, on="ray", slots=2)
    assert {record.provenance.place for record in records} == {"ray"}
    assert differing(specs, by_here, tmp_path) == []
    names = [process.info["name"] or "" for process in psutil.process_iter(["name", "status"])]
    assert [name for name in names if name.startswith(("raylet", "gcs_server", "ray::"))] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_driver_that_was_ended(tmp_path, number):
    driver, processes = drive(tmp_path, LONG)
    assert len(processes) > 5
    os.kill(driver.pid, number)
    driver.communicate()
    assert still_there(processes) == []
    if number == signal.SIGTERM:
        assert len(list(tmp_path.glob("*/checkpoint*"))) >= 2


def test_a_cluster_that_does_not_answer_is_refused(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", "nowhere"):
        with pytest.raises(CreditscopeError, match=address):
            train(twelve_runs(), tmp_path, on=f"ray:{address}")
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(CreditscopeError, match=r"creditscope\[slurm\]"):
        train(twelve_runs(), tmp_path, on="slurm")


def test_settings_of_another_place_are_refused(tmp_path):
    for settings in ({"slurm": {"partition": "main"}}, {"ray": {"partition": "main"}}):
        with pytest.raises(CreditscopeError, match=r"slurm|partition"):
            train(twelve_runs(), tmp_path, on="ray", settings=settings)
