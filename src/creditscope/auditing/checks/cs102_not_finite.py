"""CS102, not finite: the loss, a module's output, a weight or its gradient is NaN or infinite."""

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, quoted
from creditscope.record import Snapshot

AFTER_ITS_CAUSES = 44
"""Rank of what was finite at the first snapshot: a wrong scale, or too large a step, comes before."""


@register_check("cs102_not_finite")
class NotFinite(NetworkCheck):
    """Of the first snapshot that has it, the first place in the forward is named; of gradients, in the backward."""

    code, title, line = "CS102", "not finite", "signal"
    when = "an output, a weight, a gradient or the loss is NaN or infinite"
    why = "One NaN makes every number after it a NaN, and one step with it all weights."
    remedy = (
        "Look into the module named: a logarithm or root of 0, a division by 0, a softmax over nothing but masked "
        "entries, inputs with NaN. If the weights themselves are not finite, lower the learning rate or clip gradients."
    )
    order = 20

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        if not _first_lost(net, net.snapshot)[0]:
            return self.passed("all outputs, weights and gradients are finite")
        known = ((snapshot, *_first_lost(net, snapshot)) for snapshot in net.history)
        first, said, where = next(found for found in known if found[1])
        rank = self.order if first is net.start else AFTER_ITS_CAUSES
        return self.issue(f"{said} at {first.when}", where=where, rank=rank)


def _first_lost(net: NetworkMoment, snapshot: Snapshot) -> tuple[str, str]:
    """What is not finite, and where first."""
    weights = net.weights_at(snapshot)
    spoilt = {w.module: w.fact.name for w in reversed(weights) if w.size is None}
    for module in net.modules_at(snapshot):
        if module.finite is not None and module.finite < 1:
            if module.name in spoilt:
                return f"the weight {spoilt[module.name]} is not finite", module.name
            return f"the output of {quoted(module.name)} ({module.fact.kind}) is not finite", module.name
    if spoilt:
        name = next(reversed(spoilt))
        return f"the weight {spoilt[name]} is not finite", name
    if snapshot.loss is None:
        return "the loss is not finite, although all modules give finite outputs", ""
    order = {m.name: m.place for m in net.modules_at(snapshot)}
    lost = [w for w in weights if w.gradient is None]
    if lost:
        top = max(lost, key=lambda w: order.get(w.module, -1))
        return f"the gradient of {top.fact.name} is not finite, although the loss is", top.module
    return "", ""
