"""Slurm with three nodes on this host: a node that dies, a driver that dies, jobs that are cancelled, settings."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import runs
from runs import OnceEnded, differing, train, twelve_runs
from slurm_cluster import NODES, three_slurm_nodes

from creditscope.errors import CreditscopeError
from creditscope.train.events import Epoch, Event
from creditscope.train.work import find_work

needs_slurm = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/sbin/slurmctld").exists(), reason="root, slurm-wlm and munge are needed"
)
pytestmark = pytest.mark.engine
LONG = 100_000


@pytest.fixture
def cluster():
    with three_slurm_nodes() as started:
        yield started


@needs_slurm
def test_a_node_is_lost(tmp_path, by_here, cluster):
    """Slurm queues its job again, which goes on from checkpoints."""
    specs = twelve_runs()
    kill = OnceEnded(3, lambda: cluster.kill_node("node2"))
    records = train(specs, tmp_path, on="slurm", readers=[kill])
    assert len(cluster.processes) == 2 + len(NODES) - 1
    assert {record.provenance.place for record in records} == {"slurm"}
    assert differing(specs, by_here, tmp_path) == []
    assert not (tmp_path / ".work").exists()


def drive(root: Path, epochs: int) -> subprocess.Popen[str]:
    command = [sys.executable, runs.__file__, str(root), "slurm", str(epochs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for(happened, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.5)


@needs_slurm
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_jobs_go_on_without_their_driver(tmp_path, by_here, cluster, number):
    specs = twelve_runs()
    driver = drive(tmp_path, specs[0].epochs)
    wait_for(lambda: list(tmp_path.glob("*/snapshots.jsonl")))
    driver.send_signal(number)
    driver.communicate()
    assert cluster.ask("squeue", "--noheader")
    wait_for(lambda: not cluster.ask("squeue", "--noheader"))
    assert differing(specs, by_here, tmp_path) == []
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*")}
    train(specs, tmp_path, on="slurm")
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*")}


@needs_slurm
def test_cancelled_jobs_leave_checkpoints(tmp_path, cluster):
    driver = drive(tmp_path, LONG)
    wait_for(lambda: list(tmp_path.glob("*/snapshots.jsonl")))
    driver.kill()
    driver.communicate()
    for work in find_work(tmp_path):
        work.cancel()
    wait_for(lambda: not cluster.ask("squeue", "--noheader"))
    assert len(list(tmp_path.glob("*/checkpoint*"))) == 3


@needs_slurm
def test_a_job_whose_time_is_over_is_queued_again(tmp_path, by_here, cluster):
    """The signal that Slurm sends before a job's end, here by hand, when a run is half done."""
    specs, sent = twelve_runs(), []

    def read(event: Event) -> None:
        if isinstance(event, Epoch) and event.done >= specs[0].epochs // 2 and not sent:
            sent.append(cluster.ask("scancel", "--signal=USR2", "1"))

    train(specs, tmp_path, on="slurm", readers=[read])
    assert cluster.ask("scontrol", "show", "job", "1").count("Restarts=1") == 3
    resumes = [json.loads(path.read_text())["resumes"] for path in tmp_path.glob("*/provenance.json")]
    assert max(resumes) >= 1
    assert differing(specs, by_here, tmp_path) == []


@needs_slurm
@pytest.mark.parametrize(
    ("settings", "named"), [({"partion": "main"}, "partion"), ({"mem": "many"}, "mem"), ({"time": "soon"}, "soon")]
)
def test_settings_that_slurm_does_not_have_are_refused(tmp_path, cluster, settings, named):
    with pytest.raises(CreditscopeError, match=named):
        train(twelve_runs(), tmp_path, on="slurm", settings={"slurm": settings})
    assert not cluster.ask("squeue", "--noheader")


def test_without_slurm_it_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(CreditscopeError, match="sbatch"):
        train(twelve_runs(), tmp_path, on="slurm")
