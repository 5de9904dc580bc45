"""What captions write of numbers: no spread that is there reads as none, and no zero has a sign; and their lines."""

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from creditscope.auditing.stats import Interval
from creditscope.paper.figures._style import text_width, wrap_text
from creditscope.paper.figures._words import FINEST, accuracy_words, interval_words, number, share, signed, with_spread

SPREADS = st.floats(10.0**-FINEST, 100)
MEANS = st.floats(-100, 100)
WRITERS = st.sampled_from([number, signed, share])


def read(text: str) -> float:
    """The number that a text says."""
    return float(text.replace("−", "-"))


@given(MEANS, SPREADS, WRITERS, st.integers(1, 3))
def test_a_spread_is_written_with_the_digits_it_takes(mean, spread, write, digits):
    first, second = with_spread(mean, spread, write=write, digits=digits).split("\u00a0±\u00a0")
    decimals = len(second.partition(".")[2])
    assert read(second) > 0
    assert decimals >= digits
    assert math.isclose(read(second), spread, abs_tol=0.51 * 10.0**-decimals)
    assert len(first.partition(".")[2]) == decimals
    assert math.isclose(read(first), mean, abs_tol=0.51 * 10.0**-decimals)
    assert decimals == digits or round(spread, decimals - 1) == 0  # no more of them than it takes


@given(MEANS, st.floats(0, 0.1 * 10.0**-FINEST), WRITERS)
def test_no_spread_is_a_plain_zero(mean, spread, write):
    assert with_spread(mean, spread, write=write) == f"{write(mean, digits=1)}\u00a0±\u00a00"


def test_one_seed_has_no_spread():
    assert with_spread(0.25, math.nan, write=share, digits=2) == ".25"
    assert accuracy_words(Interval(0.25, None, None, 1)) == ".25"
    assert interval_words(Interval(0.3, None, None, 1), unit=" pp") == "+0.3 pp (one seed)"


@given(MEANS, SPREADS, st.integers(1, 2))
def test_bounds_show_their_side_of_zero(mean, half, digits):
    low, high = mean - half, mean + half
    said = interval_words(Interval(mean, low, high, 3), digits=digits)
    _, *bounds = re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", said).groups()
    for bound, text in zip((low, high), bounds, strict=True):
        if abs(bound) > 10.0**-FINEST:
            assert text.startswith("−" if bound < 0 else "+")
            assert read(text) != 0


@given(st.floats(-1, 1), st.integers(0, 3))
def test_no_zero_has_a_sign(value, digits):
    for said in (signed(value, digits=digits), number(value, digits=digits)):
        assert not re.fullmatch(r"[+−-]0*\.?0*", said)


def test_wrapped_lines_keep_the_words_and_the_width():
    text = "one line of words that is far too long for the box it has to stand in"
    lines = wrap_text(text, width=1.0)
    assert " ".join(lines) == text
    assert len(lines) > 2
    assert max(text_width(part) for part in lines) <= 1.0
