"""CS107, saturated units: most entries of a sigmoid or tanh layer lie at its bounds, where the slope is nothing."""

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, quoted


@register_check("cs107_saturated_units")
class SaturatedUnits(NetworkCheck):
    """Of activations that are modules by their kind, of functions by what the next layer reads."""

    code, title, line = "CS107", "saturated units", "signal"
    value_is = "largest share of saturated entries in a layer"
    value_limit = "saturated"
    when = "more than {saturated:g} of the entries of a bounded layer lie next to its bounds"
    why = "The slope there is under a twentieth of the largest, and each such layer takes that off the gradient."
    remedy = (
        "Start with smaller weights (Xavier with the gain of the activation), normalise inputs and what comes before "
        "the activation, lower the learning rate; or use an activation without an upper bound."
    )
    order, persists = 50, True

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        known = [m for m in net.modules if m.saturated is not None]
        if not known:
            return self.not_applicable("no layer whose units have bounds")
        worst = max(m.saturated or 0 for m in known)
        hit = [m for m in known if (m.saturated or 0) > limits.saturated]
        if not hit:
            return self.passed(f"at most {worst:.0%} of the entries lie at a bound", value=worst)
        said = (
            f"{hit[0].saturated or 0:.0%} of the entries of {quoted(hit[0].owner)} lie at the bounds of its activation"
        )
        began = {m.name for m in net.modules_at(net.start) if (m.saturated or 0) > limits.saturated}
        if net.has_learnt and hit[0].name not in began:
            return self.tip(f"{said}; the net has learnt all the same", where=hit[0].owner, value=worst)
        return self.issue(said, where=hit[0].owner, value=worst)
