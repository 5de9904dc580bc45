import pytest

from creditscope.auditing import Thresholds
from creditscope.auditing.checks import all_checks
from creditscope.auditing.thresholds import table
from creditscope.errors import CreditscopeError


def test_unknown_names_list_the_choices():
    with pytest.raises(CreditscopeError, match=r"name of a threshold, but got 'grwth'. Choices: .*growth, .*task_gain"):
        Thresholds().changed(grwth=1)


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_negative_and_nan_are_refused(value):
    with pytest.raises(CreditscopeError, match="Expected threshold 'growth' to be a number >= 0"):
        Thresholds().changed(growth=value)


@pytest.mark.parametrize("name", ["chance_confidence", "depth_confidence", "orientation"])
def test_a_probability_above_one_is_refused(name):
    """95 for 0.95 makes the bound NaN, and what is compared with NaN then passes."""
    with pytest.raises(CreditscopeError, match=f"Expected threshold '{name}'"):
        Thresholds().changed(**{name: 95})


def test_a_changed_copy_leaves_the_rest():
    before = Thresholds()
    after = before.changed(growth=20)
    assert (before.growth, after.growth, after.noise) == (50, 20, before.noise)


def test_the_table_shows_the_values_in_use():
    rows = {row["name"]: row for row in table(Thresholds().changed(growth=20))}
    assert (rows["growth"]["value"], rows["growth"]["published"]) == (20, "50, same quantity")
    assert {row["check"] for row in rows.values()} <= {check.code for check in all_checks()}
    assert all(row["meaning"] for row in rows.values())
