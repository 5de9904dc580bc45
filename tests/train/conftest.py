"""Training tests run on one thread, as workers do, so that bits can be compared; whole stacks are trained once."""

from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
import torch
from stacking import train_on

from creditscope.record import RunSpec
from creditscope.train.places import here


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
def launched(monkeypatch) -> list[psutil.Process]:
    """Every worker process there was."""
    processes, start = [], here._Process._start

    def start_and_tell(slot: here._Process) -> None:
        start(slot)
        processes.extend(psutil.Process(pid) for pid in slot._executor._processes)

    monkeypatch.setattr(here._Process, "_start", start_and_tell)
    return processes
