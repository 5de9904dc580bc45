"""Training tests run on one thread, as workers do, so that bits can be compared; whole stacks are trained once."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from stacking import train_on

from creditscope.record import RunSpec
from creditscope.train import pool


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Callable[[Sequence[RunSpec]], Path]:
    """Records of runs that were stacked and never stopped; trained once."""
    root = tmp_path_factory.mktemp("whole")

    def made(specs: Sequence[RunSpec]) -> Path:
        assert set(train_on(specs, root)) == {"complete"}
        return root

    return made


@pytest.fixture
def launched(monkeypatch) -> list[subprocess.Popen[str]]:
    """Every worker process there was."""
    processes, launch = [], pool._launch
    monkeypatch.setattr(pool, "_launch", lambda *given: processes.append(launch(*given)) or processes[-1])
    return processes
