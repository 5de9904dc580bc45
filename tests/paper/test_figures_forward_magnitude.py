"""The figure of states of deep GCNs: sizes are those of the records, gaps and zeros too."""

import numpy as np
import pytest
from bottleneck_runs import altered, depth_of, line, panel
from pages import assert_clear, texts

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import _depths
from creditscope.paper.figures.forward_magnitude import plot_forward_magnitude
from creditscope.record import Record, load_records


@pytest.fixture(scope="module")
def records(bottleneck) -> list[Record]:
    return load_records(bottleneck)


@pytest.mark.slow
def test_sizes_of_states_follow_the_records(records):
    fig = plot_forward_magnitude(records)
    for letter, depth in (("A", 3), ("B", 5)):
        for name in ("rms", "dispersion"):
            values = np.array([getattr(r.last.layers, name) for r in records if depth_of(r) == depth])
            np.testing.assert_allclose(line(panel(fig, letter), name), np.median(values, axis=0))
    zero = plot_forward_magnitude(
        altered(records, 3, layers=lambda m: {"rms": (0.5, 1e-20, 0.0, 0.0), "dispersion": (0.25, 1e-21, 0.0, 0.0)})
    )
    assert "M falls from 0.5 at H₀ to exactly 0 at H₂. After H₀, 0.10 to 0.10 of what is there differs" in texts(zero)
    assert "exactly 0 (drawn here)" in texts(zero)
    assert_clear(zero)


@pytest.mark.slow
def test_states_that_are_not_measured_are_not_zero(records):
    lost = altered(records, 3, layers=lambda m: {"rms": (0.5, 2.0, None, 8.0), "dispersion": (0.2, 1.0, None, 2.0)})
    said = texts(plot_forward_magnitude(lost))
    assert "M grows from 0.5 at H₀ to 8 at H₃. M is not measured at H₂. After H₀, 0.25 to 0.50 of what is" in said
    assert "exactly 0" not in said
    lost = altered(records, 3, layers=lambda m: {"rms": (0.5, None, 0.0, 0.0), "dispersion": (0.2, None, 0.0, 0.0)})
    said = texts(plot_forward_magnitude(lost))
    assert "M falls from 0.5 at H₀ to exactly 0 at H₂. M is not measured at H₁." in said


def test_no_depth_is_dropped(records, monkeypatch):
    monkeypatch.setattr(_depths, "DEPTHS", (3, 5, *range(11, 17)))
    assert len(plot_forward_magnitude(records).axes) == 8
    monkeypatch.setattr(_depths, "DEPTHS", (3, 5, *range(11, 18)))
    with pytest.raises(CreditscopeError, match="Expected at most 8 depths, a panel each, but got 9: 3, 5, 11, 12"):
        plot_forward_magnitude(records)
