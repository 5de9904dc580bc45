"""Runs that are killed at any moment, at least ten times, end with the bytes of those that were not."""

import json
import random
import signal
import subprocess
import sys
from dataclasses import asdict

import pytest
from stacking import same_bytes
from trained import record_runs

from creditscope.record import read_record, run_folder
from creditscope.train.plan import plan_run

pytestmark = pytest.mark.slow

KILLS = 12
CODE = """
import os, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from pydantic import TypeAdapter
from creditscope.record import RunSpec
from creditscope.train import training
from creditscope.train.events import Ended
from creditscope.train.groups import RunGroup
from creditscope.train.run import build_run

root, engine, specs = Path(sys.argv[1]), sys.argv[2], TypeAdapter(list[RunSpec]).validate_json(sys.argv[3])
build_run(specs[0])  # what is loaded here need not be loaded in every child


def train(events):
    training.CHECKPOINT_SECONDS = training.CHECKPOINT_SHARE = 0
    save = training.save_checkpoint

    def save_and_tell(*args):
        save(*args)
        os.write(events, b".")

    training.save_checkpoint = save_and_tell
    told = training.train_group(RunGroup(tuple(specs), engine), root, device=torch.device("cpu"))
    return 0 if {event.status for event in told if isinstance(event, Ended)} == {"complete"} else 3


for line in sys.stdin:  # after so many checkpoints, and so many seconds later, the child is killed
    checkpoints, seconds = int(line.split()[0]), float(line.split()[1])
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(ours)
            code = train(theirs)
        finally:
            os._exit(code)
    os.close(theirs)
    while checkpoints and os.read(ours, 1):
        checkpoints -= 1
    if seconds >= 0:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    else:
        while os.read(ours, 1024):
            pass
    os.close(ours)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""
"""A process that trains in children, one after the other, and kills each when it is told to: one start for all."""


DIGITS = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "batch": 700, "eval_rows": 64, "epochs": 100}
GRAPH = {"task": "sbm", "task_options": {"nodes": 160}, "net": "gcn", "net_options": {"width": 8, "dropout": 0.3}}


@pytest.mark.parametrize(
    ("engine", "seeds", "setting"), [("loop", (1,), DIGITS), ("stacked", (1, 2, 3), GRAPH | {"epochs": 50})]
)
def test_killed_at_random_moments_they_end_alike(tmp_path, engine, seeds, setting):
    fields = {"rule": "fa", "snapshot_every": 2, "noise": False, "tier": "quick", **setting}
    specs = [plan_run(seed=seed, **fields) for seed in seeds]
    killed, rng = tmp_path / "killed", random.Random(0)
    command = [sys.executable, "-c", CODE, str(killed), engine, json.dumps([asdict(spec) for spec in specs])]
    ends = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def attempt(checkpoints: int, seconds: float) -> None:
            process.stdin.write(f"{checkpoints} {seconds}\n")
            process.stdin.flush()
            ends.append(int(process.stdout.readline()))

        attempt(0, 0.02)  # before there is any checkpoint
        for _ in range(KILLS - 1):
            attempt(rng.randint(1, 7), rng.choice([0, rng.random() * 0.01]))
        attempt(0, -1)
        process.stdin.close()
    assert ends == [-signal.SIGKILL] * KILLS + [0]
    assert record_runs(specs, tmp_path / "whole", engine=engine) == {spec.digest(): "complete" for spec in specs}
    assert same_bytes(specs, killed, tmp_path / "whole")
    assert all(read_record(run_folder(killed, spec)).provenance.resumes >= 1 for spec in specs)
