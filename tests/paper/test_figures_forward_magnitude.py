"""The figure of states of deep GCNs: sizes are those of the records, gaps and zeros too."""

import numpy as np
import pytest
from bottleneck_runs import altered, depth_of, line, value
from drawn import head
from pages import assert_clear

from creditscope.paper.figures.forward_magnitude import describe, plot_forward_magnitude
from creditscope.record import load_records

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def records(bottleneck):
    return load_records(bottleneck)


def test_sizes_and_shares_follow_the_records(records):
    fig = plot_forward_magnitude(records)
    for depth in (3, 5):
        own = [r.last.layers for r in records if depth_of(r) == depth]
        sizes, spread = (np.median([getattr(m, name) for m in own], axis=0) for name in ("rms", "dispersion"))
        np.testing.assert_allclose(line(fig.axes[0], f"L = {depth}"), sizes)
        np.testing.assert_allclose(line(fig.axes[1], f"L = {depth}"), spread / sizes)
        assert value(describe(records), "M of the last state", f"L = {depth}") == pytest.approx(sizes[-1])
    assert_clear(fig)


@pytest.mark.parametrize(("spread", "said"), [(0.4389, "0.43"), (0.01, "")])
def test_the_least_share_is_told_and_not_rounded_up(records, spread, said):
    alike = [r for r in records if depth_of(r) == 3]
    changed = altered(alike, 3, layers=lambda m: {"rms": (1.0,) * 4, "dispersion": (1.0, 0.9, spread, 0.8)})
    title = head(plot_forward_magnitude(changed).axes[1])[1]
    assert (said in title) if said else not set("0123456789") & set(title)


def test_zeros_lie_at_the_foot_and_unknown_states_are_no_zeros(records):
    sizes, spread = (0.5, 1e-20, None, 0.0), (0.25, 1e-21, None, 0.0)
    changed = altered(records, 3, layers=lambda m: {"rms": sizes, "dispersion": spread})
    fig, caption = plot_forward_magnitude(changed), describe(changed)
    drawn, foot = line(fig.axes[0], "L = 3"), line(fig.axes[0], "zero")[0]
    np.testing.assert_array_equal(drawn, [0.5, 1e-20, np.nan, foot])
    np.testing.assert_allclose(line(fig.axes[1], "L = 3"), [0.5, 0.1, np.nan, np.nan])
    assert value(caption, "first state that is exactly 0", "L = 3") == "H₃"
    assert head(fig.axes[0])[1] == "L = 3: exactly 0 from H₃ on"
    assert not set("0123456789") & set(head(plot_forward_magnitude(records).axes[0])[1])
    assert value(caption, "states without M", "L = 3") == "H₂"
    assert [value(caption, f"D/M after H₀, {end}", "L = 3") for end in ("least", "most")] == pytest.approx([0.1, 0.1])
