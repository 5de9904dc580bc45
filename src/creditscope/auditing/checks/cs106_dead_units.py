"""CS106, dead units: most units of a layer give nothing in any row."""

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import FEWEST_ROWS, NetworkCheck, NetworkMoment, quoted

FEWEST_UNITS = 4


@register_check("cs106_dead_units")
class DeadUnits(NetworkCheck):
    """Counted after the activation, whether it is a module or a function; half of the entries being zero is normal."""

    code, title, line = "CS106", "dead units", "signal"
    value_is = "largest share of dead units in a layer"
    value_limit = "dead_units"
    when = "more than {dead_units:g} of the units of a layer are zero in every row"
    why = "A unit that is never active gets no gradient and cannot come back; what is left is a narrower net."
    remedy = (
        "Lower the learning rate or warm it up, start biases at 0, normalise before the activation, or use one that "
        "is not flat (LeakyReLU, GELU)."
    )
    order, persists = 52, True

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        known = [m for m in net.modules if m.dead is not None and m.fact.units >= FEWEST_UNITS]
        if not known:
            return self.not_applicable("no layer with units that can die")
        if net.snapshot.rows < FEWEST_ROWS:
            return self.not_applicable(f"fewer than {FEWEST_ROWS} rows: a unit that is seldom active looks dead")
        worst = max(known, key=lambda m: m.dead or 0)
        hit = [m for m in known if (m.dead or 0) > limits.dead_units]
        if not hit:
            return self.passed(
                f"at most {_units(worst)} ({quoted(worst.owner)}) are zero in every row", value=worst.dead
            )
        layers = len({m.owner for m in hit})
        more = f", and so in {layers - 1} further layer{'s' * (layers > 2)}" if layers > 1 else ""
        said = f"{_units(hit[0])} of {quoted(hit[0].owner)} are zero in every row{more}"
        return self.issue(said, where=hit[0].owner, value=worst.dead)


def _units(module) -> str:
    return f"{round(module.dead * module.fact.units)} of {module.fact.units} units"
