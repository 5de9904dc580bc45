"""Doctests run in a folder of their own, so that the examples of README and of the tutorial leave nothing behind."""

import importlib.util

import pytest
from _pytest.doctest import DoctestItem

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["src/creditscope/stacked_functions/_*_kernels.py"]
"""Doctests import every module; kernels can be imported only where Triton is."""


@pytest.fixture(autouse=True)
def doctest_folder(request: pytest.FixtureRequest, tmp_path, monkeypatch):
    """Change to a temporary folder for doctests only."""
    if isinstance(request.node, DoctestItem):
        monkeypatch.chdir(tmp_path)
