"""What figures of several depths share: quartiles over seeds, and the log axis with a tick for zeros."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from creditscope.paper.figures._depths import draw_log_axis, quartiles


def test_quartiles_pass_gaps_by():
    found = quartiles(np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]]))
    np.testing.assert_array_equal(found, [[1.5, np.nan], [2.0, np.nan], [2.5, np.nan]])


@pytest.mark.parametrize("ends", [(1e-3, 1e-2), (1e-50, 1.0), (0.5, 0.6), ()])
@pytest.mark.parametrize("zeros", [True, False])
def test_zeros_have_a_tick_under_the_data(ends, zeros):
    ax = Figure().add_subplot()
    floor = draw_log_axis(ax, [np.array([*ends, np.nan]), np.zeros(int(zeros))])
    (low, high), ticks = ax.get_ylim(), ax.get_yticks()
    assert all(floor < end and low < end < high for end in ends)
    assert [tick.get_text() for tick in ax.get_yticklabels()].count("0") == zeros == (ticks[0] == floor > low)
    assert 1 <= len(ticks) - zeros <= 6
