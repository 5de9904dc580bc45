"""A rule has one label, one colour and one marker, in every figure and in the report."""

from itertools import combinations

import numpy as np
import pytest
from colours import MACHADO, ciede2000, distance, linear

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


BLIND, GREY = 12.0, 3.5
"""ΔE₀₀ asked of the colours of two rules under colour-blindness; and of those that ship in grey, where markers help."""


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
        ((50, 2.5, 0), (61, -5, 29), 22.8977),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_distances_are_those_of_the_published_pairs(one, other, expected):
    """Of Sharma, Wu & Dalal, table 1."""
    assert ciede2000(np.array(one), np.array(other)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("eye", ["", "protanopia", "deuteranopia", "tritanopia"])
def test_colours_are_told_apart_by_every_eye(eye):
    looks = [*LOOKS.values(), *OTHERS]
    near = {(a, b): distance(a.colour, b.colour, eye) for a, b in combinations(looks, 2)}
    assert min(near.values()) >= BLIND, min(near, key=near.__getitem__)


def test_colours_are_told_apart_in_grey():
    near = {(a.label, b.label): distance(a.colour, b.colour, "grey") for a, b in combinations(LOOKS.values(), 2)}
    assert min(near.values()) >= GREY, min(near, key=near.__getitem__)


def test_red_and_green_are_not_told_apart_without_one_kind_of_cone():
    """Of colours equally light, which lie far apart to others: the simulation does simulate."""
    assert distance("#c06060", "#7d8a2a", "deuteranopia") < distance("#c06060", "#7d8a2a") / 3
    assert set(MACHADO) == {"protanopia", "deuteranopia", "tritanopia", "grey"}


@pytest.mark.parametrize(("side", "ground"), [("colour", "#ffffff"), ("dark", "#14171b")])
def test_colours_stand_out_from_the_ground(side, ground):
    """3 to 1, what WCAG asks of graphics."""
    for look in (*LOOKS.values(), *OTHERS):
        light, dark = sorted((_luminance(getattr(look, side)), _luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, look


def _luminance(colour: str) -> float:
    return float(np.dot((0.2126, 0.7152, 0.0722), linear(colour)))
