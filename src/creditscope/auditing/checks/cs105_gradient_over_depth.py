"""CS105, the gradient vanishes or explodes over depth: relative weight gradients fall or grow layer by layer."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, quoted
from creditscope.text import amount

Layers = Sequence[tuple[str, float]]
"""Names and relative gradients."""
BEGINS = 0.1
"""Share of the largest gradient under which a layer, and all before it, count as part of the fall."""
FLAT = 1.05
"""Steps from layer to layer that are no larger are none: where gradients are rounding, they fall no more."""


@register_check("cs105_gradient_over_depth")
class GradientOverDepth(NetworkCheck):
    """By ‖∇W‖·‖W‖ per layer, which does not change when a stream is rescaled and the function is not."""

    code, title, line = "CS105", "the gradient vanishes or explodes over depth", "signal"
    value_is = (
        "relative gradient of the first layers over the largest (of the last over the largest, where it explodes)"
    )
    value_limit = "vanishing"
    when = "the relative gradients of all first layers are under {vanishing:g} of the largest, or those of the last"
    why = "Layers that get a millionth of what others get do not learn, or the others are thrown about."
    remedy = (
        "Use skip connections, normalisation or ReLU-like units, and an initial gain that keeps the size of states "
        "(Kaiming for ReLU, Xavier for tanh); take away layers to see it go."
    )
    order, persists = 60, True

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        layers = net.layers
        if len(layers) < 3:
            return self.not_applicable("fewer than three layers with matrices")
        if net.is_fitted:
            return self.not_applicable("most rows have no error left to send down")
        largest = max(size for _, size in layers)
        if net.starts_at_zero(layers[0][0]):
            return self.not_applicable(
                "a scale or the last layer starts at zero: little goes down before the first step"
            )
        if not largest > 0:
            return self._all_zero(net)
        down, up = _running_max(layers), _running_max(layers[::-1])
        fall, rise = down[0] / largest, up[0] / largest
        if fall < limits.vanishing:
            found = self._told(net, layers, down, largest, "vanishes")
        elif rise < limits.vanishing:
            found = self._told(net, layers[::-1], up, largest, "explodes")
        else:
            return self.passed(f"the first layers get {amount(fall)} of the largest relative gradient", value=fall)
        return found

    def _told(self, net: NetworkMoment, layers: Layers, running: Sequence[float], largest: float, what: str) -> Finding:
        """`layers` from the small end on; the fall begins at the last of them that is small with all before it."""
        place = max((i for i, size in enumerate(running) if size < BEGINS * largest), default=0)
        name, share = layers[place][0], running[0] / largest
        steps = [b / a for a, b in pairwise([*running[: place + 1], largest]) if a > 0 and b > FLAT * a]
        factor = prod(step ** (1 / len(steps)) for step in steps)
        steepest = max(steps, default=1.0)
        way = "down" if what == "vanishes" else "up"
        end = f"{amount(share)} of the largest at {quoted(layers[0][0])}"
        said = f"the gradient {what} from {quoted(name)} {way}, a factor {amount(factor, 2)} per layer: {end}"
        if running[0] == 0:
            zero = max(i for i, size in enumerate(running) if size == 0)
            name = layers[zero][0]
            said = f"the gradient is exactly zero from {quoted(name)} {way}"
        elif steepest**2 > largest / running[0]:
            jumps = [b / a if a else 0.0 for a, b in pairwise([*running, largest])]
            name = layers[jumps.index(max(jumps))][0]
            said = f"the gradient {what} at {quoted(name)}, by a factor {amount(steepest, 2)} in this layer"
        if net.has_learnt:
            return self.tip(f"{said}; the net has learnt all the same", value=share, where=name)
        return self.issue(said, value=share, where=name)

    def _all_zero(self, net: NetworkMoment) -> Finding:
        top = net.layers[-1][0]
        return self.issue(f"the gradient of every layer is zero, {quoted(top)} included", where=top, value=0.0)


def _running_max(layers: Layers) -> list[float]:
    """Of each layer, the largest of it and those before."""
    found: list[float] = []
    for _, size in layers:
        found.append(max(size, found[-1] if found else 0.0))
    return found
