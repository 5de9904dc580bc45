"""Common to all tests. That this file is here puts `tests` on the path, so that tests can import `builders`."""

import importlib
import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny nets lose seconds to threads that wait for shared cores
os.environ.pop("COLUMNS", None)  # parallel workers have one, and what is printed would be as wide as they are
settings.register_profile("repeatable", derandomize=True, deadline=None)  # the same cases on every machine
settings.load_profile("repeatable")


@pytest.fixture
def own_stream():
    """What a test draws from torch's global stream is the same every time; the stream is put back."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(params=["few rows", "many rows"])
def either_path(request, monkeypatch):
    """Stacked sums over rows taken at once, and in parts with rows left over."""
    from creditscope.stacked_functions import layers

    if request.param == "many rows":
        monkeypatch.setattr(layers, "PARTS", 4)
        monkeypatch.setattr(layers, "_many_rows", lambda x: x.ndim == 3)


@pytest.fixture
def bench(monkeypatch):
    """Import a file of the benchmarks by its name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "bench"))
    return importlib.import_module


@pytest.fixture
def call(capsys):
    """Run a command; gives its exit code, standard output and standard error."""

    from creditscope.cli import main

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = 0
        try:
            main([str(a) for a in arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def told(call):
    """Run a command that must end well; gives its standard output."""

    def run(*arguments: str | Path) -> str:
        code, out, err = call(*arguments)
        assert code == 0, err
        return out

    return run


@pytest.fixture
def refused(call):
    """Run a command that must be refused; gives its standard error."""

    def run(*arguments: str | Path) -> str:
        code, out, err = call(*arguments)
        assert code == 2, out
        return err

    return run


@pytest.fixture(scope="session")
def shipped_records() -> list:
    """The records in results/paper, parsed once by a process."""
    from creditscope.record import load_records

    return load_records(Path(__file__).parents[1] / "results" / "paper")


@pytest.fixture(scope="session")
def league_records() -> list:
    """Those in results/league."""
    from creditscope.record import load_records

    return load_records(Path(__file__).parents[1] / "results" / "league")


@pytest.fixture(scope="session")
def shipped_audit(shipped_records):
    """Their audit."""
    from creditscope.auditing import audit

    return audit(shipped_records)


@pytest.fixture(scope="session")
def bottleneck(tmp_path_factory) -> Path:
    """Records of deep GCNs by backprop: depths 3 and 5, two seeds, trained for two epochs."""
    from creditscope.paper.studies import collect
    from creditscope.paper.studies.bp_bottleneck import bp_bottleneck

    folder = tmp_path_factory.mktemp("bottleneck")
    collect(bp_bottleneck("test"), folder, train=True, problems=[], slots=1, device="cpu")
    return folder
