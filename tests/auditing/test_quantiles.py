"""Quantiles against SciPy's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from creditscope.auditing.quantiles import beta_point, incomplete_beta, normal_point, t_point, t_share

PROBABILITY = st.floats(1e-5, 1 - 1e-5)
COUNT = st.integers(1, 20_000)


@given(st.floats(0.5, 1e4), st.floats(0.5, 1e4), st.floats(0, 1))
def test_the_incomplete_beta_function(a, b, x):
    assert incomplete_beta(a, b, x) == pytest.approx(float(special.betainc(a, b, x)), abs=1e-10)


@given(COUNT, COUNT, PROBABILITY)
def test_points_of_the_beta_distribution(a, b, p):
    assert beta_point(a, b, p) == pytest.approx(float(special.betaincinv(a, b, p)), rel=1e-9)


@given(st.integers(1, 10_000), PROBABILITY, st.floats(-50, 50))
def test_students_t(df, p, t):
    assert t_point(df, p) == pytest.approx(float(special.stdtrit(df, p)), rel=1e-8, abs=1e-10)
    assert t_share(df, t) == pytest.approx(float(special.stdtr(df, t)), abs=1e-10)
    assert t_point(df, 0.5) == 0


@given(PROBABILITY)
def test_the_normal_distribution(p):
    assert normal_point(p) == pytest.approx(float(special.ndtri(p)), rel=1e-12, abs=1e-14)
