"""What bench/graphs.py rests on: its fit finds the bytes it is given, and its peaks are those of what is allocated."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def graphs(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "bench"))
    return importlib.import_module("graphs")


def test_fit_finds_bytes_of_nodes_and_edges(graphs):
    rows = [
        {"nodes": nodes, "edges": edges, "step_mib": (5e6 + 1500 * nodes + 48 * edges) / 2**20}
        for nodes, edges in graphs.sizes(1_000_000)
    ]
    found, error = graphs.fit_bytes(rows, "step")
    np.testing.assert_allclose(found, [5e6, 1500, 48], rtol=1e-6)
    assert error < 1e-6
    rows[-1]["step_mib"] *= 1.2
    assert graphs.fit_bytes(rows, "step")[1] > 0.01


@pytest.mark.skipif(sys.platform != "linux", reason="resident peaks can be reset on Linux alone")
def test_peak_is_that_of_the_work(graphs):
    memory = graphs.Memory("cpu")
    sizes = [memory.peak(lambda n=n: np.ones(n * 2**17)) / 2**20 for n in (200, 50)]
    assert sizes == pytest.approx([200, 50], abs=10)


def test_sizes_without_room_are_left_out(graphs, monkeypatch):
    rows = [{"nodes": 1000, "edges": 5000, "quick_mib": 1.0}]
    monkeypatch.setattr(graphs, "free_bytes", lambda device: 100 * 2**20)
    assert graphs.fits(rows, "quick", 50_000, 250_000, "cpu")
    assert not graphs.fits(rows, "quick", 70_000, 350_000, "cpu")
