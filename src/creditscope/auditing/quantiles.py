"""Quantiles of the beta, Student's t and the normal distribution, by the standard library: audits need no SciPy.

The first two come from the regularised incomplete beta function I_x(a, b): its continued fraction (8.17.22 of the
DLMF) by Lentz's method, and inverses by Newton's, to 1e-10 of SciPy's.
"""

import math
from functools import cache
from statistics import NormalDist

TINY, ROUNDING = 1e-300, 2.0**-52
MOST_STEPS, NEAR = 200, 1e-8
"""A step of Newton's that is so small, as a share, leaves an error of its square."""


def normal_point(p: float) -> float:
    """z with P(Z < z) = p."""
    return NormalDist().inv_cdf(p)


@cache
def beta_point(a: float, b: float, p: float) -> float:
    """x with I_x(a, b) = p: Newton's steps from where a normal distribution has it, bisection where they leave."""
    low, high, mean = 0.0, 1.0, a / (a + b)
    x = mean + normal_point(p) * math.sqrt(mean * (1 - mean) / (a + b + 1))
    for _ in range(MOST_STEPS):
        x = x if low < x < high else (low + high) / 2
        apart = incomplete_beta(a, b, x) - p
        low, high = (x, high) if apart < 0 else (low, x)
        density = math.exp(_log_beta(a, b, x) - math.log(x) - math.log1p(-x))
        step = apart / (density or TINY)
        x -= step
        if abs(step) < NEAR * x:
            break
    return x


def t_share(df: float, t: float) -> float:
    """P(T < t) of Student's t; between −|t| and |t| lies I_x(1/2, df/2) at x = t²/(df + t²)."""
    return 0.5 + math.copysign(incomplete_beta(0.5, df / 2, t * t / (df + t * t)), t) / 2


@cache
def t_point(df: float, p: float) -> float:
    """t with P(T < t) = p."""
    if p == 0.5:
        return 0.0
    between = abs(2 * p - 1)  # near either end its own side keeps the digits
    if between < 0.5:
        y = beta_point(0.5, df / 2, between)
        odds = y / (1 - y)
    else:
        x = beta_point(df / 2, 0.5, 2 * min(p, 1 - p))
        odds = (1 - x) / x
    return math.copysign(math.sqrt(df * odds), p - 0.5)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b).

    >>> incomplete_beta(1, 1, 0.25), round(incomplete_beta(2, 3, 0.5), 12)  # x, and 1 − Σ_{k<2} C(4, k)/2⁴
    (0.25, 0.6875)
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, the other tail
        return 1 - incomplete_beta(b, a, 1 - x)
    above, below = 1.0, 1 / (1 - (a + b) * x / (a + 1) or TINY)
    value, change, m = below, 0.0, 0
    while abs(change - 1) > ROUNDING:
        m += 1
        odd, even = m * (b - m) / (a + 2 * m - 1), -(a + m) * (a + b + m) / (a + 2 * m + 1)
        for term in (odd * x / (a + 2 * m), even * x / (a + 2 * m)):
            above, below = 1 + term / above or TINY, 1 / (1 + term * below or TINY)
            change = above * below
            value *= change
    return math.exp(_log_beta(a, b, x)) * value / a


def _log_beta(a: float, b: float, x: float) -> float:
    """ln xᵃ(1 − x)ᵇ / B(a, b)."""
    return math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
