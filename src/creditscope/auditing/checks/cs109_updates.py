"""CS109, weights do not move as they should: none, some never, or all towards zero, from snapshot to snapshot."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, SeenWeight, shrinking
from creditscope.text import amount, first_few

NAMED = 3
NEGLIGIBLE = 1e-6
"""Share of the largest relative gradient under which a weight need not move: biases before a normalisation."""


@register_check("cs109_updates")
class Updates(NetworkCheck):
    """Of weights that have a gradient; by a sample of their entries, and the sum of all."""

    code, title, line = "CS109", "weights do not move as they should", "training"
    when = "weights with a gradient never change, or most shrink under {shrunk:g} of their size"
    why = "What the optimiser does not hold stays as it was drawn; what decay outweighs goes to zero."
    remedy = (
        "Never changed: pass model.parameters() of this very model to the optimiser, after every layer is made, and "
        "call its step. Meant so: set requires_grad to False. Shrunk: lower the weight decay."
    )
    order = 36

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        steps = [net.weights_at(s) for s in net.history[1:] if s.weights and s.weights.changed]
        if not steps or net.snapshot.untrained:
            return self.not_applicable("one snapshot: a second one, after some training, tells how weights moved")
        moved = {w.fact.name for weights in steps for w in weights if w.changed}
        if not moved:
            return self.issue(f"no weight changed since {net.start.when}")
        largest = max((w.relative or 0.0 for w in net.weights), default=0.0)
        still = [w for w in net.weights if w.fact.name not in moved and _should_move(w, largest)]
        if still and not net.is_fitted and _farthest(steps) > limits.update_least:
            names = first_few([w.fact.name for w in still], NAMED)
            said = f"{names} never changed since {net.start.when}, although a gradient gets there"
            return self.issue(said, where=still[0].module or still[0].fact.name)
        shrunk = shrinking(net)
        if shrunk is not None and shrunk < limits.shrunk:
            said = f"weights shrank to {amount(shrunk)} of their size since {net.start.when}"
            return self.issue(said, where=net.layers[0][0] if net.layers else "")
        return self.passed(f"{len(moved)} of {len(net.weights)} weights moved")


def _farthest(steps: Sequence[Sequence[SeenWeight]]) -> float:
    """Over all snapshots, the sum of the updates of the matrix that moved most: one alone may be in the optimiser."""
    sums: dict[str, float] = defaultdict(float)
    for weight in chain(*steps):
        sums[weight.fact.name] += (weight.update or 0.0) * weight.is_matrix
    return max(sums.values(), default=0.0)


def _should_move(weight: SeenWeight, largest: float) -> bool:
    return weight.reached and not weight.zero and (weight.relative or 0.0) > NEGLIGIBLE * largest
