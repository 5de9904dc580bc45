"""CS108, information lost with depth: rows, or the tokens of a row, become one and the same before the output."""

from collections.abc import Sequence
from math import prod

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, SeenModule, SeenWeight, quoted
from creditscope.text import amount

ALIKE = 1e-6
"""Spread of the units' weights over their size under which they are one unit."""
WIDE = 1.6
"""Participation ratio of rows that lie on no line; a bent line has less."""
FEWEST_CLASSES = 4
"""That do not lie on a line, if they can be told."""
DIFFERED = 10.0
"""So many times the limit must have been reached before: what never differed was not lost."""


@register_check("cs108_information_lost")
class InformationLost(NetworkCheck):
    """By the dispersion of a module's output over rows, or tokens within rows, and by what narrows it to nothing."""

    code, title, line = "CS108", "information lost with depth", "signal"
    value_is = "dispersion over rows or tokens at the end, over the size"
    value_limit = "dispersion"
    when = "rows or tokens differ by less than {dispersion:g} of their size from a module on to the end"
    why = "What is the same for every row can only be answered by the best constant."
    remedy = (
        "Take fewer layers of mixing (message passing, attention) or give them skips; normalise; scale the initial "
        "weights so that differences are kept; look whether weight decay has taken the weights."
    )
    order, persists = 62, True

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        rows = [(m, m.dispersion) for m in net.modules if m.dispersion is not None]
        tokens = [(m, m.token_dispersion) for m in net.modules if m.token_dispersion is not None]
        if said_where := _narrowed(net, limits):
            return self.issue(said_where[0], where=said_where[1], rank=said_where[2])
        for known, what, mixed in ((tokens, "tokens of a row", True), (rows, "rows", net.facts.rows_interact)):
            lost = _lost_from(known, limits.dispersion)
            if lost is None or net.starts_at_zero(known[lost][0].name):
                continue
            if any(value > DIFFERED * limits.dispersion for _, value in known) or (lost == 0 and known is rows):
                (module, _), least = known[lost], min(value for _, value in known[lost:])
                said = f"{what} are the same from {quoted(module.name)} on, to {amount(least)} of their size"
                if net.has_learnt:
                    return self.tip(f"{said}; the net has learnt all the same", where=module.name, value=least)
                return self.issue(said, where=module.name, value=least, rank=54 if mixed else self.order)
        if place := _on_a_line(net, limits):
            said = f"all rows lie on one line from {quoted(place)} on: one number of each is left"
            return self.issue(said, where=place, rank=54)
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


def _is_alike(weight: SeenWeight) -> bool:
    """Of matrices: what scales units one by one may well begin with the same numbers."""
    many = prod(weight.fact.shape[1:]) > 1 and "weight" in weight.fact.name.rpartition(".")[2]
    return many and weight.unit_spread is not None and weight.unit_spread < ALIKE


def _narrowed(net: NetworkMoment, limits: Thresholds) -> tuple[str, str, int] | None:
    """What lets hardly anything through: units that are all alike, a dropout of nearly all."""
    order = [m.name for m in net.modules if "Norm" not in m.fact.kind]
    began = {w.fact.name for w in net.weights_at(net.start) if _is_alike(w)}  # what training made alike is no cause
    alike = [w for w in net.weights if _is_alike(w) and w.fact.name in began and w.module in order]
    if alike:
        first = min(alike, key=lambda w: order.index(w.module))
        return f"all units of {quoted(first.module)} have the same weights", first.module, 34
    for m in net.modules:
        if (m.dropped or 0) > limits.dropped:
            return f"{quoted(m.name)} drops {m.dropped or 0:.0%} of the entries", m.name, 48
    return None


def _on_a_line(net: NetworkMoment, limits: Thresholds) -> str:
    """The first module from which on all have hardly more than a rank of 1, of a net that should tell many classes."""
    classes = net.snapshot.output.classes if net.snapshot.output else None
    if (classes or 0) < FEWEST_CLASSES or net.has_learnt:
        return ""
    found = _line_in(net.modules, limits)
    if found is None or (found.dispersion or 0) < DIFFERED * limits.dispersion:  # the rank is that of rounding
        return ""
    return (_line_in(net.modules_at(net.start), limits) or found).name


def _line_in(modules: Sequence[SeenModule], limits: Thresholds) -> SeenModule | None:
    wide = [(m, m.rank) for m in modules if m.rank is not None and m.fact.units > 1]
    narrow = (m for at, (m, rank) in enumerate(wide[:-1]) if rank < limits.line and _is_narrow(wide[at:]))
    return next(narrow, None)


def _is_narrow(ranked: Sequence[tuple[SeenModule, float]]) -> bool:
    return all(rank < WIDE for _, rank in ranked)
