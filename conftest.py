"""Doctests run in a folder of their own and leave nothing behind, no file and no registered name."""

import importlib.util

import pytest
from _pytest.doctest import DoctestItem

from creditscope.registry import CHECKS, COMMANDS, EXPORTS, FIGURES, NETS, RULES, STUDIES, TASKS

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["src/creditscope/stacked_functions/_*_kernels.py"]
"""Doctests import every module; kernels can be imported only where Triton is."""
REGISTRIES = (CHECKS, COMMANDS, EXPORTS, FIGURES, NETS, RULES, STUDIES, TASKS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples that train are slow, as tests that do."""
    for item in items:
        if isinstance(item, DoctestItem) and (item.path.suffix == ".md" or "cs.run(" in (item.dtest.docstring or "")):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def doctest_alone(request: pytest.FixtureRequest, tmp_path, monkeypatch):
    """A temporary folder, and names that are forgotten afterwards, for doctests only."""
    if not isinstance(request.node, DoctestItem):
        yield
        return
    monkeypatch.chdir(tmp_path)
    before = {registry: set(registry.names()) for registry in REGISTRIES}
    yield
    for registry, known in before.items():
        for name in set(registry.names()) - known:
            del registry._registered[name]
