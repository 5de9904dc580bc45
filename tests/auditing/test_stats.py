from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import stdtrit

from creditscope.auditing.stats import (
    CONFIDENCE,
    DRAWS,
    below_p,
    bootstrap_interval,
    geometric_interval,
    holm,
    share_bounds,
    t_bounds,
    t_interval,
    z_limit,
)

SEVERAL = st.lists(st.floats(0, 1), min_size=2, max_size=8).filter(lambda v: np.std(v) > 1e-9)
P = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(SEVERAL)
def test_t_interval_is_scipys(values):
    found = t_interval(values)
    low, high = stats.t.interval(CONFIDENCE, len(values) - 1, np.mean(values), stats.sem(values))
    assert (found.mean, found.n) == (pytest.approx(np.mean(values)), len(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.slow
@given(SEVERAL, st.floats(0.6, 0.999))
def test_t_bounds_are_one_sided(values, confidence):
    low, high = t_bounds(values, confidence=confidence)
    above = stats.ttest_1samp(values, 0, alternative="greater").confidence_interval(confidence)
    below = stats.ttest_1samp(values, 0, alternative="less").confidence_interval(confidence)
    assert (low, high) == (pytest.approx(above.low), pytest.approx(below.high))


def test_interval_reads_as_mean_and_half_width():
    assert str(t_interval([0.5])) == "0.500 (n = 1)"
    # sd 0.1, n = 4, t(0.975, 3) = 3.1824
    values = np.array([-1.5, -0.5, 0.5, 1.5]) * 0.1 / np.std([-1.5, -0.5, 0.5, 1.5], ddof=1) + 0.6
    assert str(t_interval(list(values))) == "0.600 ± 0.159"


@given(st.integers(1, 2000), st.floats(0, 1), st.sampled_from([0.9, 0.95, 0.99]))
def test_bounds_of_a_share_are_the_exact_interval(rows, share, confidence):
    hits = round(share * rows)
    # the two-sided interval at 2c − 1 has the one-sided bounds at c as its ends
    exact = stats.binomtest(hits, rows).proportion_ci(2 * confidence - 1, method="exact")
    assert share_bounds(hits, rows, confidence=confidence) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_bounds_of_a_share_at_its_ends():
    assert share_bounds(0, 10, confidence=0.95) == (0.0, pytest.approx(1 - 0.05 ** (1 / 10)))
    assert share_bounds(10, 10, confidence=0.95) == (pytest.approx(0.05 ** (1 / 10)), 1.0)  # p^10 = 0.05


@given(SEVERAL, st.floats(0, 1))
def test_what_lies_below_has_the_p_value_of_a_t_test(values, limit):
    assert below_p(values, limit) == pytest.approx(
        stats.ttest_1samp(values, limit, alternative="less").pvalue, abs=1e-9
    )


def test_holm_by_hand():
    # p = .01, .04, .03, .005 at .05: .005 ≤ .05/4, .01 ≤ .05/3, then .03 > .05/2 ends it
    assert holm([0.01, 0.04, 0.03, 0.005], level=0.05) == [True, False, False, True]
    # Bonferroni would stop at .0125 for all: it rejects .01 too, but not .016, which Holm does
    assert holm([0.001, 0.016, 0.04], level=0.05) == [True, True, True]


@given(P, st.sampled_from([0.01, 0.05, 0.5]))
def test_holm_is_closed_testing_with_bonferroni(p, level):
    """A hypothesis is rejected if and only if every set of hypotheses around it is, each by Bonferroni."""
    n = len(p)
    sets = [s for size in range(1, n + 1) for s in combinations(range(n), size)]
    expected = [all(min(p[j] for j in s) <= level / len(s) for s in sets if i in s) for i in range(n)]
    assert holm(p, level=level) == expected


def test_z_limit_is_the_one_sided_point():
    assert z_limit(0.01) == pytest.approx(stats.norm.isf(0.01))


@given(SEVERAL)
def test_bootstrap_is_a_percentile_interval_of_resampled_means(values):
    """An independent resampling gives the same bounds to within its own noise; they never leave the data."""
    found = bootstrap_interval(values)
    stream = np.random.default_rng(1)
    means = stream.choice(values, size=(20_000, len(values))).mean(axis=1)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.low is not None
    assert found.high is not None
    for bound, level in ((found.low, 0.025), (found.high, 0.975)):  # in probability: few values make jumps
        assert (means < bound - 1e-9).mean() <= level + 0.012
        assert (means <= bound + 1e-9).mean() >= level - 0.012
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
    assert found == bootstrap_interval(values)  # seeded


def test_bootstrap_says_what_it_is():
    found = bootstrap_interval([0.1, 0.2, 0.3, 0.4])
    assert (found.kind, found.n, found.over) == ("bootstrap", 4, "seeds; test set fixed")
    assert found.text("+.2f").startswith("+0.25 [+0.1")
    assert DRAWS >= 2000
    assert bootstrap_interval([0.5]).low is None


def test_a_geometric_interval_is_that_of_the_logarithms():
    values = [1e-7, 3e-6, 2e-5]
    found, logs = geometric_interval(values), t_interval(np.log(values).tolist())
    assert (found.mean, found.low, found.high) == pytest.approx(np.exp([logs.mean, logs.low, logs.high]))
    assert (found.scale, found.kind) == ("log", "t")
    assert found.text(".1e") == "1.8e-6 ×÷ 790"
    assert found.low == pytest.approx(found.mean**2 / found.high)
    assert geometric_interval(values, kind="bootstrap").kind == "bootstrap"


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_the_short_way_to_mean_and_bounds_is_numpys(values: list[float]):
    found = t_interval(values)
    half = float(stdtrit(len(values) - 1, 0.975)) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    expected = (np.mean(values) - half, np.mean(values) + half)
    assert found.mean == np.mean(values)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-9, abs=1e-9 * half)
