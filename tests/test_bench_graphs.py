"""What bench/graphs.py rests on: its fit finds the bytes it is given, and its peaks are those of what is allocated."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def graphs(bench):
    return bench("graphs")


def test_fit_finds_bytes_of_nodes_and_edges(graphs):
    rows = [
        {"nodes": nodes, "edges": edges, "step_mib": (5e6 + 1500 * nodes + 48 * edges) / 2**20}
        for nodes, edges in graphs.sizes(1_000_000)
    ]
    found = graphs.fit_bytes(graphs.larger_rows(rows, "step"), "step")
    np.testing.assert_allclose(found, [5e6, 1500, 48], rtol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="resident peaks can be reset on Linux alone")
def test_peak_is_that_of_the_work(graphs):
    memory = graphs.Memory("cpu")
    sizes = [memory.peak(lambda n=n: np.ones(n * 2**17)) / 2**20 for n in (200, 50)]
    assert sizes == pytest.approx([200, 50], abs=10)


@pytest.mark.skipif(sys.platform != "linux", reason="resident peaks can be reset on Linux alone")
def test_the_rule_of_thumb_holds(graphs, monkeypatch):
    sizes, size = {"DEPTH": 3, "WIDTH": 96, "FEATURES": 16}, (25_000, 150_000)
    for name, value in sizes.items():
        monkeypatch.setattr(graphs, name, value)
    peaks_of = f"graphs.prepare(*{size}, 'cpu', graphs.WORKS)[2]"
    code = f"import graphs, json; vars(graphs).update({sizes}); print(json.dumps({peaks_of}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(graphs.__file__).parent, check=True, capture_output=True, text=True
    )
    peaks = json.loads(done.stdout)
    for work in graphs.WORKS:
        assert graphs.rule_of_thumb(work, *size) == pytest.approx(peaks[work], rel=0.25), work


def test_sizes_without_room_are_left_out(graphs, monkeypatch):
    rows = [{"nodes": 1000, "edges": 5000, "quick_mib": 1.0}]
    monkeypatch.setattr(graphs, "free_bytes", lambda device: 100 * 2**20)
    assert graphs.fits(rows, "quick", 50_000, 250_000, "cpu")
    assert not graphs.fits(rows, "quick", 70_000, 350_000, "cpu")
