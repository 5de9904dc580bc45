"""Twelve runs trained here, with which those of other engines are compared; one thread, as in workers."""

from pathlib import Path

import pytest
from runs import train, twelve_runs


@pytest.fixture(scope="session")
def by_here(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("here")
    train(twelve_runs(), root, on="here", slots=2)
    return root
