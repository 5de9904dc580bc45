"""CS104, out of scale at the start: the loss is far above the best constant's, or logits are sure before training."""

from math import log

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, SeenModule, best_constant, quoted
from creditscope.record import Snapshot
from creditscope.text import amount

STEEP = 2.0
"""Growth of the RMS from one layer to the next that is worth naming."""
LARGE, LARGE_LOGIT = 10.0, 3.0
"""RMS of the output under which it is the targets that are out of scale, and no layer."""
RECOVERED = 0.1
"""Loss, as a share of the constant's, from which a bad start is past."""


@register_check("cs104_out_of_scale")
class OutOfScale(NetworkCheck):
    """The first snapshot is judged: what goes wrong in training is another matter (CS110)."""

    code, title, line = "CS104", "out of scale at the start", "signal"
    value_is = "loss over a constant's, at the first snapshot"
    value_limit = "start_loss"
    when = (
        "the first loss is over {start_loss:g} times a constant's ({start_loss_numbers:g} for numbers), or most rows "
        "are sure and wrong"
    )
    why = "The first steps then only undo the initial scale, in huge jumps that may kill units or overflow."
    remedy = (
        "Scale the initial weights of the module named (gain, 1/√depth for what is added to a stream), normalise the "
        "inputs and, for numbers, the targets."
    )
    order = 40

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        start, best = net.start, _indifferent(net.start)
        if best is None or start.loss is None or best <= 0:
            return self.not_applicable("the best constant's loss is not known, or 0")
        ratio, sure = start.loss / best, (start.output.sure if start.output else None) or 0.0
        said = f"loss {amount(start.loss)} at {start.when}, {amount(ratio)} of a constant's {amount(best)}"
        flooded = [rms for rms in start.taps.h_rms if rms is not None]
        if start.untrained and flooded and min(flooded) > limits.start_rms and not net.has_learnt:
            first = net.modules[0].name
            return self.issue(
                f"every tap has an RMS over {amount(min(flooded))}: look at the inputs", where=first, value=ratio
            )
        numbers = start.output is not None and start.output.classes is None
        limit = {True: limits.start_loss_numbers, False: limits.start_loss}[numbers]
        if (sure > limits.sure_rows and ratio > 1) or ratio > limit:
            if start is not net.snapshot and net.loss is not None and net.loss < RECOVERED * best:
                return self.tip(f"{said}; it has come down since", value=ratio)
            where, grows = _where(net, start)
            return self.issue(f"{said}{grows}", where=where, value=ratio)
        return self.passed(said, value=ratio)


def _indifferent(start: Snapshot) -> float | None:
    """The best constant's loss, or that of even chances if it is more: labels may be one-sided, a new net is not."""
    output, best = start.output, best_constant(start)
    if output is None or best is None:
        return None
    even = log(output.classes) if output.classes else log(2) if output.loss_has_sigmoid else 0.0
    return max(best, even)


def _where(net: NetworkMoment, start: Snapshot) -> tuple[str, str]:
    """The first layer whose output is much larger than that of the one before."""
    with_weights = {w.module for w in net.weights_at(start) if w.is_matrix}
    layers: list[SeenModule] = [m for m in net.modules_at(start) if m.name in with_weights and m.rms]
    before, growth = 1.0, {}
    for layer in layers:
        growth[layer.name], before = (layer.rms or 0) / before, layer.rms or before
    steep = max(growth.values(), default=0.0)
    output = start.output
    small = output is not None and (output.rms or 0) < (LARGE if output.classes is None else LARGE_LOGIT)
    if steep < STEEP or small:
        return "", "; no layer stands out: look at the scale of targets and inputs"
    name = next(n for n, g in growth.items() if g >= max(STEEP, steep**0.5))
    return name, f"; the output of {quoted(name)} is {amount(growth[name])} times as large as what comes before"
