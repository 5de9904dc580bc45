"""What figures of several depths compute: quartiles over seeds, and the log axis with room for zeros."""

import numpy as np
import pytest

from creditscope.paper.figures._log_axis import LogScale
from creditscope.paper.figures._stats import quartiles


def test_quartiles_pass_gaps_by():
    low, middle, high = quartiles(np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]]))
    assert (low[0], middle[0], high[0]) == (1.5, 2.0, 2.5)
    assert np.isnan([low[1], middle[1], high[1]]).all()


@pytest.mark.parametrize(("least", "most"), [(1e-3, 1e-2), (1e-50, 1.0), (0.5, 0.6)])
def test_floors_lie_under_the_data_and_ticks_above_them(least, most):
    scale = LogScale.of(np.array([least, most, 0.0, np.nan]), zeros=True, second=True)
    assert scale.low < scale.floor < scale.second < least <= most < scale.high
    assert all(scale.second <= tick <= scale.high for tick in scale.ticks())
    assert len(scale.ticks()) <= 6
