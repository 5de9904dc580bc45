"""CS103, a path is cut: weights that run but that no gradient reaches, or a skip whose gradient is thrown away."""

from collections.abc import Sequence

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, SeenWeight, quoted
from creditscope.text import first_few

NAMED = 3
"""Weights that a message names; the others are counted."""


@register_check("cs103_cut_path")
class CutPath(NetworkCheck):
    """Told from a head that the loss does not use, from modules that did not run, and from gradients that are zero."""

    code, title, line = "CS103", "a path is cut", "signal"
    when = "a state is detached on a way that weights learn by, or weights run with gradients off"
    why = "What no gradient reaches stays as it was drawn, and the loss may fall all the same."
    remedy = (
        "Take away detach(), .data, .item() or torch.no_grad() in the module named. Where it is meant so, "
        "set requires_grad to False for the weights, so that everybody sees it."
    )
    order = 30

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        if not net.weights:
            return self.skipped("no weight gradients were measured")
        cuts, order = net.facts.cuts, [m.name for m in net.modules]
        lost = [w for w in net.weights if not w.reached]
        ran = [w for w in lost if w.module]
        names = first_few([w.fact.name for w in ran], NAMED)
        if cuts and cuts.without_grad and (hit := [w for w in ran if w.module in cuts.without_grad]):
            return self.issue(f"{quoted(hit[0].module)} runs with gradients off: none for {names}", where=hit[0].module)
        if cuts and cuts.detached and ran:
            place = cuts.detached[0] or _last(ran, order)
            return self.issue(
                f"a state is detached in {quoted(cuts.detached[0])}: no gradient for {names}", where=place
            )
        if ran and order and _is_first(net, ran):
            place = _last(ran, order)
            return self.issue(f"no gradient comes down to {quoted(place)}: none for {names}", where=place)
        if cuts and cuts.skips:
            said = f"a skip is detached in {quoted(cuts.skips[0])}: the gradient takes the branch alone"
            return self.issue(said, where=cuts.skips[0])
        if lost:
            what = (
                f"the loss does not use {names}"
                if ran
                else f"{first_few([w.fact.name for w in lost], NAMED)} did not run"
            )
            return self.tip(f"{what}, such as a second head", where=lost[0].module)
        return self.passed(f"a gradient reaches all {len(net.weights)} weights")


def _last(weights: Sequence[SeenWeight], order: Sequence[str]) -> str:
    """The module nearest to the output."""
    return max((w.module for w in weights), key=lambda name: order.index(name) if name in order else -1)


def _is_first(net: NetworkMoment, lost: Sequence[SeenWeight]) -> bool:
    """Whether the first layer of all is among them, which no head is."""
    places = {m.name: m.place for m in reversed(net.modules)}
    trained = [w for w in net.weights if w.module in places]
    first = min(trained, key=lambda w: places[w.module])
    return first.module in {w.module for w in lost}
