"""What a check measures, place by place: the marks of its picture, each beside the limit that it is judged by."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Literal

from creditscope.auditing.checks._network import NetworkMoment
from creditscope.auditing.depth import trained_depth, use_of_depth
from creditscope.auditing.methods import Method, Moment
from creditscope.auditing.stats import share_bounds, t_bounds
from creditscope.auditing.tap_credit import Estimate, asked_taps, descent_estimate, judge_taps
from creditscope.auditing.thresholds import Thresholds
from creditscope.record.table import growths
from creditscope.text import count, subscript

LIMITS = Thresholds()
CONTAINER = "Sequential"
"""What gives the output of its last part."""


@dataclass(frozen=True)
class Mark:
    """A number at a place; None where there is none to draw on the axis (exactly zero, not finite, cut off)."""

    place: str
    value: float | None
    limit: float | None
    fired: bool
    low: float | None = None
    high: float | None = None


Marks = Iterator[Mark]


@dataclass(frozen=True)
class Reading:
    """Which quantity it is, on which side of the limit a check fires, and who reads the marks."""

    quantity: str
    side: Literal["above", "below"]
    read: Callable[[Any], Marks]
    log: bool = False
    nothing: str = "none"
    """What is written where there is no number."""
    alone: bool = False
    """Whether it is read off the first seed."""


READINGS: dict[str, Reading] = {}


def reads(code: str, quantity: str, side: Literal["above", "below"], **how: Any) -> Callable:
    """Decorator of the function that reads the marks of a check off a method, or off a network."""

    def keep(read: Callable[[Any], Marks]) -> Callable[[Any], Marks]:
        READINGS[code] = Reading(quantity, side, read, **how)
        return read

    return keep


def tap(number: int) -> str:
    """As figures name it."""
    return subscript("h", number)


def pooled(place: str, values: Sequence[float], limit: float, *, log: bool = False) -> Mark:
    """Mean over seeds with its one-sided bounds, of what should stay under a limit."""
    own = [math.log(value) for value in values] if log else list(values)
    back = math.exp if log else float
    mean, (low, high) = fmean(own), t_bounds(own, confidence=LIMITS.seed_confidence) if len(own) > 1 else (own * 2)
    return Mark(place, back(mean), limit, back(low) > limit, back(low), back(high))


def estimated(place: str, found: Estimate, limit: float, *, fired: bool) -> Mark:
    """An estimate over seeds that a check made itself."""
    return Mark(place, found.mean, limit, fired, found.low, found.high)


def moments(method: Method) -> list[Moment]:
    """The end of every run."""
    return [Moment.of(record) for record in method.whole]


@reads("CS001", "RMS of the stream after a block over that before it", "above", log=True)
def _read_growth(method: Method) -> Marks:
    found = [growths(record.facts, record.last) for record in method.whole]
    for number in found[0]:
        yield pooled(tap(number), [own[number] for own in found], LIMITS.growth, log=True)


@reads("CS002", "share of the gradient that is rounding noise", "above", log=True)
def _read_noise(method: Method) -> Marks:
    for number in range(len(method.facts.taps)):
        values = [record.last.taps.g_noise[number] for record in method.whole]
        yield pooled(tap(number), [value for value in values if value], LIMITS.noise, log=True)


@reads("CS003", "share of the gradient that is one direction for all rows", "above")
def _read_common(method: Method) -> Marks:
    """By the mean over seeds."""
    for number in range(len(method.facts.taps)):
        mean = fmean(record.last.taps.common[number] or 0.0 for record in method.whole)
        yield Mark(tap(number), mean, LIMITS.common, mean > LIMITS.common)


@reads("CS004", "accuracy over the better frozen baseline", "below")
def _read_gain(method: Method) -> Marks:
    found = use_of_depth(method)
    assert found is not None
    low, high = t_bounds(found.gains, confidence=LIMITS.depth_confidence)
    yield Mark(count(len(found.gains), "seed"), found.gain, LIMITS.depth_gain, high < LIMITS.depth_gain, low, high)


def _answers(method: Method) -> list:
    answers = judge_taps(moments(method), asked_taps(method.facts), LIMITS)
    assert not isinstance(answers, str), answers
    return answers


@reads("CS005", "cosine of credit with the gradient, the lower of both means", "below")
def _read_credit(method: Method) -> Marks:
    for one in _answers(method):
        yield estimated(tap(one.tap), one.under, LIMITS.alignment, fired=one.answer == "below")


@reads("CS006", "cosine of credit with the gradient: the mean Γ, and tap by tap", "below")
def _read_hidden(method: Method) -> Marks:
    gammas = [record.last.gamma or 0.0 for record in method.whole]
    low, high = t_bounds(gammas, confidence=LIMITS.alignment_confidence)
    yield Mark("Γ", fmean(gammas), LIMITS.alignment, fired=False, low=low, high=high)
    yield from _read_credit(method)


@reads(
    "CS007",
    "norm of the gradient of a weight matrix; crossed: 0 in float32",
    "below",
    log=True,
    nothing="exactly zero",
    alone=True,
)
def _read_weight_gradients(method: Method) -> Marks:
    """Fired: exactly zero, or so small that float32 loses its norm."""
    (moment, *_) = moments(method)
    weights = moment.snapshot.weights
    assert weights is not None
    for at, fact in enumerate(moment.facts.weights):
        lost = weights.exact_all_zero[at] or weights.exact_underflow[at]
        if not fact.name.endswith("bias"):
            yield Mark(fact.name.removesuffix(".weight"), weights.exact_norm[at] or None, None, fired=bool(lost))


@reads("CS008", "decrease of the loss along credit, less that of a random orientation", "below")
def _read_descent(method: Method) -> Marks:
    level = 1 - LIMITS.orientation
    for one in _answers(method):
        found = descent_estimate(moments(method), one.tap, "descent", over_null=True, confidence=level)
        assert found is not None
        yield estimated(tap(one.tap), found, 0.0, fired=one.answer == "carries" and found.high <= 0)


@reads("CS009", "accuracy of a linear probe at a middle tap", "above", alone=True)
def _read_probes(method: Method) -> Marks:
    """Above the best constant guess by enough, and above what the untrained net gives."""
    (moment, *_) = moments(method)
    facts, after, before = moment.facts, moment.snapshot.tap_probe, moment.untrained
    assert before is not None
    for number in facts.gamma_taps[:-1]:
        probe, rows = after[number], moment.snapshot.probe_rows or facts.test_rows or moment.snapshot.rows_covered
        bar = max((facts.best_constant or 0.0) + LIMITS.probe_gain, before.tap_probe[number] or 0.0)
        if probe is not None and number not in moment.snapshot.constant_taps:
            low, high = share_bounds(round(probe * rows), rows, confidence=LIMITS.chance_confidence)
            yield Mark(tap(number), probe, bar, low > bar, low, high)


@reads("CS010", "accuracy on test rows", "below")
def _read_accuracy(method: Method) -> Marks:
    values = [record.last.accuracy or 0.0 for record in method.whole]
    limit = (method.facts.best_constant or 0.0) + LIMITS.chance_gain
    low, high = t_bounds(values, confidence=LIMITS.chance_confidence)
    yield Mark(count(len(values), "seed"), fmean(values), limit, high < limit, low, high)


@reads("CS011", "accuracy lost when one block is put back to where it began", "below")
def _read_rewound(method: Method) -> Marks:
    found = trained_depth(method.whole, LIMITS)
    assert found is not None
    for block in found.blocks:
        yield Mark(tap(block.tap), block.mean, LIMITS.rewind_loss, block.tap in found.idle, block.low, block.high)


@reads("CS012", "decrease of the loss by a stage's own update, over that of the gradient's", "below")
def _read_stages(method: Method) -> Marks:
    level = LIMITS.alignment_confidence
    for number in range(len(method.facts.taps)):
        found = descent_estimate(moments(method), number, "descent_stage", over_null=False, confidence=level)
        if found:
            fired = found.high < LIMITS.descent_share
            yield estimated(f"stage {number}", found, LIMITS.descent_share, fired=fired)


@reads("CS101", "share of the output's classes that labels use", "below")
def _read_classes(net: NetworkMoment) -> Marks:
    output = net.snapshot.output
    assert output is not None
    assert output.classes
    assert output.largest_label is not None
    used = (output.largest_label + 1) / output.classes
    yield Mark(f"{output.classes} classes", used, LIMITS.used_classes, used <= LIMITS.used_classes)


@reads("CS102", "share of a module's outputs that is finite", "below")
def _read_finite(net: NetworkMoment) -> Marks:
    """At the first snapshot that has some that are not, else the last."""
    shots = [[m for m in net.modules_at(snapshot) if m.fact.kind != CONTAINER] for snapshot in net.history]
    lost = [modules for modules in shots if any((m.finite or 0.0) < 1 for m in modules if m.finite is not None)]
    for module in (lost or shots[-1:])[0]:
        if module.finite is not None:
            yield Mark(module.name, module.finite, 1.0, module.finite < 1)


@reads("CS103", "gradient of a weight matrix times its size", "below", log=True, nothing="no gradient arrives")
def _read_paths(net: NetworkMoment) -> Marks:
    for weight in net.weights:
        if weight.is_matrix:
            yield Mark(weight.fact.name, weight.relative if weight.reached else None, None, not weight.reached)


@reads("CS104", "loss before training over that of a constant", "above", log=True)
def _read_start(net: NetworkMoment) -> Marks:
    output, loss = net.start.output, net.start.loss
    assert output is not None
    assert output.classes
    assert loss is not None
    assert output.best_constant_loss is not None
    ratio = loss / max(output.best_constant_loss, math.log(output.classes))
    yield Mark("first snapshot", ratio, LIMITS.start_loss, ratio > LIMITS.start_loss)


@reads("CS105", "relative gradient of a layer over the largest", "below", log=True, nothing="zero")
def _read_layers(net: NetworkMoment) -> Marks:
    """A layer fires with all before it."""
    largest, running = max(size for _, size in net.layers), 0.0
    for name, size in net.layers:
        running = max(running, size / largest)
        yield Mark(name, size / largest or None, LIMITS.vanishing, running < LIMITS.vanishing)


@reads("CS106", "share of a layer's units that are zero in every row", "above")
def _read_dead(net: NetworkMoment) -> Marks:
    for module in net.modules:
        if module.dead is not None:
            yield Mark(module.owner, module.dead, LIMITS.dead_units, module.dead > LIMITS.dead_units)


@reads("CS107", "share of a layer's entries at the bounds of its activation", "above")
def _read_saturated(net: NetworkMoment) -> Marks:
    for module in net.modules:
        if module.saturated is not None:
            yield Mark(module.owner, module.saturated, LIMITS.saturated, module.saturated > LIMITS.saturated)


@reads("CS108", "how much rows differ after a module, over their size", "below", log=True, nothing="all the same")
def _read_dispersion(net: NetworkMoment) -> Marks:
    """A module fires with all after it."""
    modules = [module for module in net.modules if module.fact.kind != CONTAINER]
    known = [(module.name, module.dispersion) for module in modules if module.dispersion is not None]
    for at, (name, value) in enumerate(known):
        lost = all(later < LIMITS.dispersion for _, later in known[at:])
        yield Mark(name, value or None, LIMITS.dispersion, lost)


@reads("CS109", "how far a weight matrix moved, over its size", "below", log=True, nothing="never changed")
def _read_moved(net: NetworkMoment) -> Marks:
    steps = [net.weights_at(snapshot) for snapshot in net.history[1:]]
    for at, weight in enumerate(net.weights):
        moved = sum(own[at].update or 0.0 for own in steps)
        if weight.is_matrix:
            yield Mark(weight.fact.name, moved or None, None, not any(own[at].changed for own in steps))


@reads("CS110", "how far weights moved by then: median over matrices, over their size", "below", log=True)
def _read_travelled(net: NetworkMoment) -> Marks:
    """The case that is too slow; the loss, which must not fall either, is not drawn."""
    moved = 0.0
    for snapshot in net.history[1:]:
        moved += median(w.update for w in net.weights_at(snapshot) if w.is_matrix and w.update is not None)
        limit = LIMITS.update_low * snapshot.step
        yield Mark(f"step {snapshot.step}", moved or None, limit, moved < limit)
