"""CS108, information lost with depth: rows, or the tokens of a row, become one and the same before the output."""

from collections.abc import Sequence

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, SeenModule, quoted
from creditscope.text import amount

DIFFERED = 10.0
"""So many times the limit must have been reached before: what never differed was not lost."""


@register_check("cs108_information_lost")
class InformationLost(NetworkCheck):
    """By the dispersion of a module's output over rows, or over tokens within rows, as a share of its size."""

    code, title, line = "CS108", "information lost with depth", "signal"
    value_is = "dispersion over rows or tokens at the end, over the size"
    value_limit = "dispersion"
    when = "rows or tokens differ by less than {dispersion:g} of their size from a module on to the end"
    why = "What is the same for every row can only be answered by the best constant."
    remedy = (
        "Take fewer layers of mixing (message passing, attention) or give them skips; normalise; scale the initial "
        "weights so that differences are kept; look whether weight decay has taken the weights."
    )
    order = 62

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        rows = [(m, m.dispersion) for m in net.modules if m.dispersion is not None]
        tokens = [(m, m.token_dispersion) for m in net.modules if m.token_dispersion is not None]
        for known, what, mixed in ((tokens, "tokens of a row", True), (rows, "rows", net.facts.rows_interact)):
            lost = _lost_from(known, limits.dispersion)
            if lost is not None and any(value > DIFFERED * limits.dispersion for _, value in known):
                (module, _), least = known[lost], min(value for _, value in known[lost:])
                said = f"{what} are the same from {quoted(module.name)} on, to {amount(least)} of their size"
                if net.has_learnt:
                    return self.tip(f"{said}; the net has learnt all the same", where=module.name, value=least)
                return self.issue(said, where=module.name, value=least, rank=54 if mixed else self.order)
        if not rows:
            return self.not_applicable("no module has rows first")
        last = rows[-1][1]
        return self.passed(f"rows differ by {amount(last)} of their size at the end", value=last)


def _lost_from(known: Sequence[tuple[SeenModule, float]], limit: float) -> int | None:
    """From where on all lie under the limit; None if the last does not."""
    place = None
    for i in range(len(known) - 1, -1, -1):
        if known[i][1] >= limit:
            break
        place = i
    return place
