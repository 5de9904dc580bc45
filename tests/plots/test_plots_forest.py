"""Means with intervals in rows: what is drawn where, of any numbers."""

import numpy as np
import pytest
from drawn import line, words
from pages import assert_clear
from scipy import stats

from creditscope import plots
from creditscope.errors import CreditscopeError

VALUES = {"BP": [0.7, 0.72, 0.71], "DFA": [0.3, np.nan, 0.4]}


def test_means_intervals_and_seeds():
    ax = plots.forest([plots.Estimate(name, values) for name, values in VALUES.items()])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["BP", "DFA"]
    half = stats.t.ppf(0.975, 2) * stats.sem(VALUES["BP"])
    np.testing.assert_allclose(line(ax, "BP"), [[0.71], [0.0]])
    np.testing.assert_allclose(line(ax, "BP interval"), [[0.71 - half, 0.71 + half], [0, 0]])
    np.testing.assert_allclose(line(ax, "DFA seeds"), [[0.3, 0.4], [1, 1]])
    assert_clear(ax.figure)


def test_a_log_axis_has_geometric_means_of_what_is_above_zero_and_says_what_is_not():
    ax = plots.forest([plots.Estimate("growth", [1.0, 100.0, 0.0])], log=True)
    assert line(ax, "growth")[0, 0] == pytest.approx(10)
    assert ax.get_xscale() == "log"
    assert [word in ax.get_title("left") for word in ("geometric", "not drawn: 1 value")] == [True, True]


@pytest.mark.parametrize("given", [[], {"BP": [0.7]}, [("BP", [0.7])]], ids=["none", "a dict", "pairs"])
def test_what_is_no_estimate_is_refused(given):
    with pytest.raises(CreditscopeError, match=r"plots\.Estimate"):
        plots.forest(given)


def test_several_of_one_row_lie_below_one_another_and_one_value_has_no_interval():
    ax = plots.forest(
        [plots.Estimate("row", [1.0], "a"), plots.Estimate("row", [2.0], "b"), plots.Estimate("last", [])]
    )
    assert line(ax, "row a")[1, 0] < 0 < line(ax, "row b")[1, 0]
    assert set(line(ax, "row a interval")[0]) == {1.0}
    assert len(ax.get_yticklabels()) == 2
    assert words(ax) == ["a", "b"]


def test_what_is_missing_is_a_row_with_a_note():
    ax = plots.forest([plots.Estimate("BP", [0.7, 0.8]), plots.Estimate("DFA", [], note="not on record")])
    assert words(ax) == ["not on record"]
    assert "DFA" not in [drawn.get_gid() for drawn in ax.lines]
