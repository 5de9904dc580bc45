"""Doctests run in a folder of their own, so that README's examples leave nothing behind."""

import pytest
from _pytest.doctest import DoctestItem


@pytest.fixture(autouse=True)
def doctest_folder(request: pytest.FixtureRequest, tmp_path, monkeypatch):
    """Change to a temporary folder for doctests only."""
    if isinstance(request.node, DoctestItem):
        monkeypatch.chdir(tmp_path)
