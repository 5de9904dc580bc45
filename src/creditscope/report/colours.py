"""Colours: maps of even lightness steps, safe for the colour-blind; a value's place in one; and those of the rules."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from creditscope.rule_styles import LOOKS, OTHERS, rule_looks
from creditscope.text import superscript

DIVERGING_LEVELS, SEQUENTIAL_LEVELS = 33, 32
BLUE, RED = 255.0, 35.0
"""Hues of the two arms: apart for every common form of colour-blindness."""
TO_CONES = np.array(
    [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
)
TO_LINEAR_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)
"""Ottosson's matrices."""


@cache
def diverging() -> tuple[str, ...]:
    """From near-white (1) over dark blue (0) to darker red (−1): told less is darker, told wrong is red."""
    middle = DIVERGING_LEVELS // 2
    steps = [(i - middle) / middle for i in range(DIVERGING_LEVELS)]
    arms = [(0.40 - 0.56 * t, 0.11 * (1 + t), BLUE) if t <= 0 else (0.40 - 0.16 * t, 0.13, RED) for t in steps]
    return tuple(oklch(*arm) for arm in arms)


@cache
def sequential() -> tuple[str, ...]:
    """From pale yellow over green to dark blue, which is the end that is a danger."""
    steps = [i / (SEQUENTIAL_LEVELS - 1) for i in range(SEQUENTIAL_LEVELS)]
    return tuple(oklch(0.95 - 0.68 * t, 0.09 + 0.05 * math.sin(math.pi * t), 100 + 175 * t) for t in steps)


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """A colour of OKLCH as #rrggbb; chroma that the screen does not have is taken back, lightness is kept.

    >>> oklch(1.0, 0.0, 0.0), oklch(0.0, 0.0, 0.0)
    ('#ffffff', '#000000')
    """
    direction = np.array([math.cos(math.radians(hue)), math.sin(math.radians(hue))])
    while True:
        linear = TO_LINEAR_RGB @ (TO_CONES @ (lightness, *(chroma * direction))) ** 3
        if chroma < 1e-3 or ((linear >= -1e-4) & (linear <= 1.0001)).all():
            light = linear.clip(0, 1)
            channels = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
            return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels.tolist())
        chroma *= 0.97


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
    light, dark = (
        "".join(f"--c{i}:{getattr(look, of)};" for i, look in enumerate(_RULES)) for of in ("colour", "dark")
    )
    grounds = [f":root{{{light}}}", f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"]
    drawn = [f".line.c{i},.lead.c{i}{{stroke:var(--c{i})}}.band.c{i}{{fill:var(--c{i})}}" for i in range(len(_RULES))]
    return "\n".join([*lines, *bars, *grounds, *drawn])


SIGNED_TICKS = ((1.0, "1"), (0.25, ".25"), (0.0, "0"), (-0.25, "−.25"), (-1.0, "−1"))
MOST_TICKS = 4


@dataclass(frozen=True)
class Scale:
    """One quantity's colours in one setting, from what is well to what is a danger, which is dark.

    Signed ones run from 1 to −1 by a square root, sizes by their logarithm.
    """

    kind: Literal["signed", "log"]
    low: int = -1
    high: int = 1
    """Ends; of a log scale their logarithms to base 10."""
    has_zero: bool = False
    """Whether a size is exactly zero somewhere, which no logarithm shows."""
    falling: bool = False
    """Whether small sizes are the danger."""

    @property
    def letter(self) -> str:
        return "d" if self.kind == "signed" else "s"

    def place(self, value: float) -> float:
        """From 0 to 1 along the bar.

        >>> Scale("signed").place(0.25), Scale("log", -2, 2).place(10), Scale("log", -2, 2, falling=True).place(10)
        (0.25, 0.75, 0.25)
        """
        if self.kind == "signed":
            return 0.5 - 0.5 * math.copysign(math.sqrt(min(abs(value), 1.0)), value)
        place = min(max((math.log10(value) - self.low) / (self.high - self.low), 0.0), 1.0)
        return 1.0 - place if self.falling else place

    def css(self, value: float) -> str:
        if self.kind == "log" and value == 0:
            return "zero"
        levels = DIVERGING_LEVELS if self.kind == "signed" else SEQUENTIAL_LEVELS
        return f"{self.letter}{round(self.place(value) * (levels - 1))}"

    def ticks(self) -> tuple[tuple[float, str], ...]:
        if self.kind == "signed":
            return tuple((self.place(value), label) for value, label in SIGNED_TICKS)
        inner = decades(self.low, self.high, MOST_TICKS)
        room = (self.high - self.low) / MOST_TICKS  # both ends of a bar are labelled, and nothing right beside them
        shown = [e for e in inner if e == inner[0] or self.high - e > room / 2 or e == self.high]
        ends = [] if shown[-1] == self.high else [self.high]
        return tuple(sorted((self.place(10.0**e), power(e)) for e in (*shown, *ends)))


SIGNED = Scale("signed")


def log_scale(values: np.ndarray, *, falling: bool = False) -> Scale:
    """A scale of whole decades over all sizes of a setting; NaN counts for nothing."""
    positive = np.log10(values[values > 0]) if (values > 0).any() else np.zeros(1)
    low, high = math.floor(positive.min() + 1e-9), math.ceil(positive.max() - 1e-9)
    return Scale("log", low, max(high, low + 1), has_zero=bool((values == 0).any()), falling=falling)


def decades(low: float, high: float, most: int) -> list[int]:
    """Whole powers between two at equal steps from the lowest on, at most so many.

    >>> decades(-7, 2, 4), decades(-9, 1, 4)
    ([-7, -4, -1, 2], [-9, -5, -1])
    """
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    step = max(1, math.ceil((last - first) / max(most - 1, 1)))
    return list(range(first, last + 1, step))


def power(exponent: int) -> str:
    """A power of ten as people write it.

    >>> power(-5), power(0), power(2)
    ('10⁻⁵', '1', '100')
    """
    return f"{10.0**exponent:g}" if abs(exponent) <= 3 else f"10{superscript(exponent)}"
