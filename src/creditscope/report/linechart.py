"""A line chart as SVG: a mean and a band over seeds per method, labelled at its end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from creditscope.report.scales import decades, power
from creditscope.text import amount, number

WIDTH, HEIGHT = 440, 225
"""Of a chart whose labels fit beside it; more lines make it taller."""
LEFT, TOP, BOTTOM = 46, 12, 30
LABEL_STEP = 13.0
LONGEST_LABEL = 21
LABEL_SPACE, LETTER = 26, 6.6
"""Room right of the lines: before a label, and for each of its letters."""
EPOCH_TICKS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
DASHES = 8
"""Colour tells the rule, a dash its methods; more lines begin anew, thinner and with one dash of their own."""


@dataclass(frozen=True)
class Line:
    """One method: mean, lowest and highest seed at each epoch; `colour` is the class of its rule's."""

    label: str
    colour: str
    epochs: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def draw_chart(lines: Sequence[Line], title: str, *, log: bool) -> Markup:
    """Epochs on a log scale of 1 + epoch; values on a log scale if asked."""
    axis = _Axis(lines, log=log)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {axis.height}" role="img" aria-label="{escape(_say(lines, title))}">'
    ]
    parts += axis.frame()
    parts += [_band(line, axis) for line in lines]
    parts += [_mean(line, i, axis) for i, line in enumerate(lines)]
    parts += _end_labels(lines, axis)
    return Markup("".join(parts) + "</svg>")


class _Axis:
    """Where values and epochs lie."""

    def __init__(self, lines: Sequence[Line], *, log: bool):
        self.log = log
        self.height = max(HEIGHT, round(TOP + 4 + LABEL_STEP * (len(lines) - 1) + BOTTOM))
        letters = min(max(len(line.label) for line in lines), LONGEST_LABEL)
        self.right = round(WIDTH - LABEL_SPACE - LETTER * letters)
        values = [v for line in lines for v in (*line.low, *line.high)]
        low, high = min(map(self._scaled, values)), max(map(self._scaled, values))
        pad = 0.04 * (high - low) or 0.5 * abs(high) or 0.5
        self.low, self.high = low - pad, high + pad
        self.last = max(epoch for line in lines for epoch in line.epochs)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def x(self, epoch: float) -> float:
        return LEFT + (self.right - LEFT) * math.log1p(epoch) / (math.log1p(self.last) or 1.0)

    def y(self, value: float) -> float:
        return self._y(self._scaled(value))

    def _y(self, scaled: float) -> float:
        return TOP + (self.height - TOP - BOTTOM) * (self.high - scaled) / (self.high - self.low)

    def frame(self) -> list[str]:
        """Grid lines with their labels, and the name of the epochs' axis."""
        right, bottom = self.right, self.height - BOTTOM
        parts = []
        for scaled, label in self._ticks():
            y = self._y(scaled)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.4g}H{right}"/>')
            parts.append(f'<text class="y" x="{LEFT - 6}" y="{y + 4:.4g}">{label}</text>')
        for epoch in self._epochs():
            parts.append(f'<text class="x" x="{self.x(epoch):.4g}" y="{bottom + 14}">{epoch}</text>')
        parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>')
        parts.append(f'<text class="x" x="{(LEFT + right) / 2:g}" y="{self.height - 3}">epoch</text>')
        return parts

    def _ticks(self) -> list[tuple[float, str]]:
        if self.log:
            return log_ticks(self.low, self.high)
        step = nice_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step)
        places = [step * i for i in range(first, math.floor(self.high / step) + 1)]
        return [(p, number(p, ".10g")) for p in places]

    def _epochs(self) -> list[int]:
        chosen: list[int] = []
        for epoch in [e for e in EPOCH_TICKS if e < self.last] + [self.last]:
            while chosen and self.x(epoch) - self.x(chosen[-1]) < 24:
                if epoch != self.last or len(chosen) == 1:
                    break
                chosen.pop()
            else:
                chosen.append(epoch)
        return chosen


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Logarithms and labels: whole decades, with 2 and 5 between where there are few, or the ends of a short span.

    >>> [label for _, label in log_ticks(0.9, 2.2)], [label for _, label in log_ticks(-7, 2)]
    (['10', '20', '50', '100'], ['10⁻⁷', '10⁻⁵', '0.001', '0.1', '10'])
    """
    whole = decades(low, high, 6)
    if len(whole) > 2:
        return [(e, power(e)) for e in whole]
    fine = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    inside = [(math.log10(v), f"{v:.3g}") for v in fine if low <= math.log10(v) <= high]
    return inside if len(inside) > 1 else [(s, f"{10**s:.3g}") for s in (low, high)]


def nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least so large.

    >>> nice_step(0.03), nice_step(7)
    (0.05, 10.0)
    """
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * m for m in (1, 2, 5, 10) if base * m >= rough * (1 - 1e-9))
    return float(f"{step:.3g}")


def _point(axis: _Axis, epoch: int, value: float) -> str:
    return f"{axis.x(epoch):.1f} {axis.y(value):.1f}"


def _band(line: Line, axis: _Axis) -> str:
    there = [_point(axis, e, v) for e, v in zip(line.epochs, line.high, strict=True)]
    back = [_point(axis, e, v) for e, v in zip(line.epochs, line.low, strict=True)]
    return f'<path class="band {line.colour}" d="M{"L".join(there + back[::-1])}z"/>'


def _mean(line: Line, i: int, axis: _Axis) -> str:
    points = [_point(axis, e, v) for e, v in zip(line.epochs, line.mean, strict=True)]
    again = " again" if i >= DASHES else ""
    return f'<path class="line {line.colour} d{i % DASHES}{again}" d="M{"L".join(points)}"/>'


def _end_labels(lines: Sequence[Line], axis: _Axis) -> list[str]:
    """Each beside the end of its line, moved apart where they would touch."""
    ends = sorted(range(len(lines)), key=lambda i: axis.y(lines[i].mean[-1]))
    wanted = [axis.y(lines[i].mean[-1]) for i in ends]
    parts = []
    for i, own, y in zip(ends, wanted, spread(wanted, LABEL_STEP, TOP + 4, axis.height - BOTTOM), strict=True):
        x, label = axis.x(lines[i].epochs[-1]), lines[i].label
        shown = shorten(label, LONGEST_LABEL)
        parts.append(f'<path class="lead {lines[i].colour}" d="M{x + 2:.4g} {own:.4g}L{axis.right + 12} {y:.4g}h6"/>')
        parts.append(
            f'<text x="{axis.right + 21}" y="{y + 4:.4g}">{escape(shown)}<title>{escape(label)}</title></text>'
        )
    return parts


def shorten(text: str, most: int) -> str:
    """At most so many letters, with the middle left out: names of one rule often differ at their ends.

    >>> shorten("block FA, norm batch, λ 0.1", 21)
    'block FA, …tch, λ 0.1'
    """
    end = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - end]}…{text[-end:]}"


def spread(wanted: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Ascending places at least a step apart, near the wanted ones, and inside if there is room.

    >>> spread([10, 11, 50], 10, 0, 100)
    [10, 20, 50]
    """
    placed: list[float] = []
    for y in wanted:
        placed.append(max(y, placed[-1] + step) if placed else max(y, low))
    limit = max(high, low + step * (len(placed) - 1))
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - step
    return placed


def _say(lines: Sequence[Line], title: str) -> str:
    ends = ", ".join(f"{line.label} {amount(line.mean[-1])}" for line in lines)
    return f"{title} over training; at the end: {ends}"
