"""Colour maps of even lightness steps, safe for the colour-blind, made in OKLCH; and the colours of the rules."""

import math
from collections.abc import Iterable
from functools import cache

from creditscope.rule_styles import LOOKS, OTHERS, rule_looks

DIVERGING_LEVELS, SEQUENTIAL_LEVELS = 33, 32
BLUE, ORANGE = 255.0, 50.0
"""Hues of the two arms: apart for every common form of colour-blindness."""


@cache
def diverging() -> tuple[str, ...]:
    """From blue (negative) over near-white (zero) to orange (positive)."""
    middle = DIVERGING_LEVELS // 2
    found = []
    for i in range(DIVERGING_LEVELS):
        away = abs(i - middle) / middle
        found.append(oklch(0.97 - 0.52 * away, 0.14 * away, BLUE if i < middle else ORANGE))
    return tuple(found)


@cache
def sequential() -> tuple[str, ...]:
    """From pale yellow (small) over green to dark blue (large)."""
    steps = [i / (SEQUENTIAL_LEVELS - 1) for i in range(SEQUENTIAL_LEVELS)]
    return tuple(oklch(0.95 - 0.68 * t, 0.09 + 0.05 * math.sin(math.pi * t), 100 + 175 * t) for t in steps)


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """A colour of OKLCH as #rrggbb; chroma that the screen does not have is taken back, lightness is kept.

    >>> oklch(1.0, 0.0, 0.0), oklch(0.0, 0.0, 0.0)
    ('#ffffff', '#000000')
    """
    while True:
        channels = _linear(lightness, chroma, math.radians(hue))
        if all(-1e-4 <= c <= 1.0001 for c in channels) or chroma < 1e-3:
            return "#" + "".join(f"{round(255 * _encode(min(max(c, 0.0), 1.0))):02x}" for c in channels)
        chroma *= 0.97


def _linear(lightness: float, chroma: float, hue: float) -> tuple[float, float, float]:
    """Linear sRGB of an OKLCH colour (Ottosson's matrices)."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def _encode(channel: float) -> float:
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055


_RULES = (*LOOKS.values(), *OTHERS)


def rule_classes(rules: Iterable[str]) -> dict[str, str]:
    """The class of each rule's colour: that of its look, wherever it stands on the page.

    >>> rule_classes(["dfa", "bp", "mine"])
    {'dfa': 'c3', 'bp': 'c0', 'mine': 'c7'}
    """
    places = {look.colour: f"c{i}" for i, look in enumerate(_RULES)}
    return {rule: places[look.colour] for rule, look in rule_looks(dict.fromkeys(rules), labels={}).items()}


def colour_rules() -> str:
    """As CSS: a class per level of the maps, a gradient for each legend bar, a class per rule."""
    maps = {"d": diverging(), "s": sequential()}
    lines = [f".{name}{i}{{stroke:{colour}}}" for name, colours in maps.items() for i, colour in enumerate(colours)]
    bars = [f".bar-{name}{{background:linear-gradient(90deg,{','.join(c)})}}" for name, c in maps.items()]
    light = "".join(f"--c{i}:{look.colour};" for i, look in enumerate(_RULES))
    dark = "".join(f"--c{i}:{look.dark};" for i, look in enumerate(_RULES))
    grounds = [f":root{{{light}}}", f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"]
    drawn = [f".line.c{i},.lead.c{i}{{stroke:var(--c{i})}}.band.c{i}{{fill:var(--c{i})}}" for i in range(len(_RULES))]
    return "\n".join([*lines, *bars, *grounds, *drawn])
