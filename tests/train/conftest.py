"""Training tests run on one thread, as workers do, so that bits can be compared; whole stacks are trained once."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from stacking import train_on

from creditscope.record import RunSpec


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
