"""A rule has one label, one colour and one marker, in every figure and in the report."""

import pytest

from creditscope.registry import RULES
from creditscope.rule_styles import LOOKS, OTHERS, rule_looks
from creditscope.rules import rule_class


def test_labels_are_the_rules_own():
    assert set(LOOKS) <= set(RULES.names())
    for name, look in LOOKS.items():
        assert look.label == rule_class(name).label


def test_no_two_rules_look_alike():
    looks = [*LOOKS.values(), *OTHERS]
    for shown in ("colour", "marker", "dark"):
        assert len({getattr(look, shown) for look in looks}) == len(looks)


def test_company_does_not_change_a_look():
    alone = {rule: rule_looks([rule], labels={})[rule] for rule in LOOKS}
    assert rule_looks(LOOKS, labels={}) == alone


@pytest.mark.parametrize(("side", "ground"), [("colour", "#ffffff"), ("dark", "#14171b")])
def test_colours_stand_out_from_the_ground(side, ground):
    """3 to 1, what WCAG asks of graphics."""
    for look in (*LOOKS.values(), *OTHERS):
        light, dark = sorted((_luminance(getattr(look, side)), _luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, look


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
