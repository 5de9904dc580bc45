"""Accuracy, Γ and the sizes at the top over training; a mean and a band over seeds per method."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from markupsafe import Markup, escape

from creditscope.auditing.methods import Method
from creditscope.plots._quantities import is_size, title
from creditscope.record.table import SCALARS
from creditscope.report.colours import decades, power
from creditscope.report.history import drawn_records, four, mean_over_seeds, pick, shared_epochs
from creditscope.text import amount, number

QUANTITIES = ("accuracy", "gamma", "h_norm", "g_norm")
"""What is drawn; of the sizes that of the last tap."""
OF_NETWORK = ("loss", "accuracy", "h_norm", "g_norm")
"""The same of a model that was watched under backprop."""
MOST_POINTS = 40
FEWEST_POINTS = 3
"""Before and after training alone are no curve."""

WIDTH, HEIGHT = 440, 225
"""Of a chart whose labels fit beside it; more curves make it taller."""
LEFT, TOP, BOTTOM = 46, 12, 30
LABEL_STEP = 13.0
LONGEST_LABEL = 21
LABEL_SPACE, LETTER = 26, 6.6
"""Room right of the curves: before a label, and for each of its letters."""
EPOCH_TICKS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
DASHES = 8
"""Colour tells the rule, a dash its methods; more curves begin anew, thinner and with one dash of their own."""


@dataclass(frozen=True)
class Curve:
    """One method: mean, lowest and highest seed at each epoch; `colour` is the class of its rule's."""

    label: str
    colour: str
    epochs: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def draw_curves(methods: Sequence[Method], colours: Mapping[str, str], axis: str = "epoch") -> list[tuple[str, Markup]]:
    """Title and chart of each quantity that some method has at enough epochs; `colours` are classes by rule."""
    charts = []
    for quantity in OF_NETWORK if methods[0].facts.is_network else QUANTITIES:
        found = [_curve(method, quantity, colours[method.facts.rule.name]) for method in methods]
        name = title(quantity) if quantity in SCALARS else f"{title(quantity)}, last tap"
        if curves := [curve for curve in found if curve]:
            charts.append((name, draw_chart(curves, name, log=is_size(quantity), counted=axis)))
    return charts


def _curve(method: Method, quantity: str, colour: str) -> Curve | None:
    """Epochs at which a seed lacks the value, or has none that a log axis shows, are left out."""
    records, size = drawn_records(method), is_size(quantity)
    epochs = shared_epochs(records)
    read = attrgetter(quantity) if quantity in SCALARS else lambda snapshot: getattr(snapshot.taps, quantity)[-1]
    by_epoch = [{s.epoch: read(s) for s in r.snapshots} for r in records]
    values = np.array([[found[epoch] for epoch in epochs] for found in by_epoch], dtype=float)
    shown = [epoch for epoch, column in zip(epochs, values.T, strict=True) if (column > (0 if size else -np.inf)).all()]
    if len(shown) < FEWEST_POINTS:
        return None
    kept = pick(shown, MOST_POINTS)
    values = values[:, np.isin(epochs, kept)]
    mean = mean_over_seeds(values, size=size)
    return Curve(method.label, colour, kept, mean.tolist(), values.min(0).tolist(), values.max(0).tolist())


def draw_chart(curves: Sequence[Curve], title: str, *, log: bool, counted: str = "epoch") -> Markup:
    """Epochs on a log scale of 1 + epoch; values on a log scale if asked."""
    axis, ends = (
        _Axis(curves, log=log, counted=counted),
        ", ".join(f"{curve.label} {amount(curve.mean[-1])}" for curve in curves),
    )
    said = escape(f"{title} over training; at the end: {ends}")
    told = [[curve.label, list(curve.epochs), list(map(four, curve.mean))] for curve in curves]
    hooks = f'data-frame="{LEFT} {axis.right} {axis.last}" data-curves="{escape(json.dumps(told))}"'
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {axis.height}" role="img" aria-label="{said}" {hooks}>',
        *axis.frame(),
    ]
    for curve in curves:
        there, back = axis.points(curve.epochs, curve.high), axis.points(curve.epochs, curve.low)
        parts.append(f'<path class="band {curve.colour}" d="M{"L".join(there + back[::-1])}z"/>')
    for i, curve in enumerate(curves):
        again = " again" if i >= DASHES else ""
        points = "L".join(axis.points(curve.epochs, curve.mean))
        parts.append(
            f'<path class="line {curve.colour} d{i % DASHES}{again}" data-of="{escape(curve.label)}" d="M{points}"/>'
        )
    return Markup("".join([*parts, *_end_labels(curves, axis), "</svg>"]))


class _Axis:
    """Where values and epochs lie."""

    def __init__(self, curves: Sequence[Curve], *, log: bool, counted: str):
        self.log, self.counted = log, counted
        self.height = max(HEIGHT, round(TOP + 4 + LABEL_STEP * (len(curves) - 1) + BOTTOM))
        letters = min(max(len(curve.label) for curve in curves), LONGEST_LABEL)
        self.right = round(WIDTH - LABEL_SPACE - LETTER * letters)
        values = [v for curve in curves for v in (*curve.low, *curve.high)]
        low, high = min(map(self._scaled, values)), max(map(self._scaled, values))
        pad = 0.04 * (high - low) or 0.5 * abs(high) or 0.5
        self.low, self.high = low - pad, high + pad
        self.last = max(epoch for curve in curves for epoch in curve.epochs)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def x(self, epoch: float) -> float:
        return LEFT + (self.right - LEFT) * math.log1p(epoch) / (math.log1p(self.last) or 1.0)

    def y(self, value: float) -> float:
        return self._y(self._scaled(value))

    def points(self, epochs: Sequence[int], values: Sequence[float]) -> list[str]:
        return [f"{self.x(e):.1f} {self.y(v):.1f}" for e, v in zip(epochs, values, strict=True)]

    def _y(self, scaled: float) -> float:
        return TOP + (self.height - TOP - BOTTOM) * (self.high - scaled) / (self.high - self.low)

    def frame(self) -> list[str]:
        """Grid curves with their labels, and the name of the epochs' axis."""
        right, bottom = self.right, self.height - BOTTOM
        ticks = [(self._y(scaled), label) for scaled, label in self._ticks()]
        return [
            *(
                f'<path class="grid" d="M{LEFT} {y:.4g}H{right}"/>'
                f'<text class="y" x="{LEFT - 6}" y="{y + 4:.4g}">{label}</text>'
                for y, label in ticks
            ),
            *(f'<text class="x" x="{self.x(e):.4g}" y="{bottom + 14}">{e}</text>' for e in self._epochs()),
            f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>',
            f'<text class="x" x="{(LEFT + right) / 2:g}" y="{self.height - 3}">{self.counted}</text>',
        ]

    def _ticks(self) -> list[tuple[float, str]]:
        if self.log:
            return log_ticks(self.low, self.high)
        step = nice_step((self.high - self.low) / 4)
        places = range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        return [(step * i, number(step * i, ".10g")) for i in places]

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


def _end_labels(curves: Sequence[Curve], axis: _Axis) -> list[str]:
    """Each beside the end of its line, moved apart where they would touch."""
    parts, ordered = [], sorted(curves, key=lambda curve: axis.y(curve.mean[-1]))
    wanted = [axis.y(curve.mean[-1]) for curve in ordered]
    placed = spread(wanted, LABEL_STEP, TOP + 4, axis.height - BOTTOM)
    for curve, own, y in zip(ordered, wanted, placed, strict=True):
        x, shown = axis.x(curve.epochs[-1]), escape(shorten(curve.label, LONGEST_LABEL))
        parts.append(f'<path class="lead {curve.colour}" d="M{x + 2:.4g} {own:.4g}L{axis.right + 12} {y:.4g}h6"/>')
        parts.append(f'<text x="{axis.right + 21}" y="{y + 4:.4g}" data-of="{escape(curve.label)}">{shown}</text>')
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
