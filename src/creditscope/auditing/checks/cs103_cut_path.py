"""CS103, a path is cut: weights that run but that no gradient reaches, or a skip whose gradient is thrown away."""

from collections.abc import Sequence

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment, SeenModule, SeenWeight, quoted
from creditscope.text import first_few

NAMED = 3
"""Weights that a message names; the others are counted."""
MOSTLY = 0.95
"""Share of dead units of a layer through which no gradient comes."""
ALIKE = 1e-5
"""Dispersion of rows under which there is nothing to tell apart, and so no gradient."""
FEWEST_SIBLINGS = 2
"""Modules of a list that ran, for one that did not to stand out."""


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
        if place := _zero_below(net):
            said = f"the gradient is exactly zero for every layer up to {quoted(place)}, though not after it"
            return self.issue(f"{said}: something there has no slope", where=place)
        if idle := _idle_sibling(net, lost):
            return self.issue(f"{quoted(idle)} never runs, although its siblings do, one after the other", where=idle)
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
    """Whether the first layer of all is among them, and nothing else reads what it reads, as it would beside a head."""
    places, gone = {m.name: m for m in reversed(net.modules)}, {w.module for w in lost}
    first = min((places[w.module] for w in net.weights if w.module in places), key=lambda m: m.place)
    beside = [m for m in net.modules if m.fact.source == first.fact.source and not _is_in(m.name, gone)]
    return first.name in gone and not beside


def _is_in(name: str, others: set[str]) -> bool:
    """Whether it is one of them, or around one."""
    return any(other == name or other.startswith(f"{name}.") for other in others)


def _zero_below(net: NetworkMoment) -> str:
    """The last of the first layers whose gradients are all exactly zero, where no dead units explain it."""
    sizes = [size for _, size in net.layers]
    place = next((i for i, size in enumerate(sizes) if size > 0), 0) - 1
    if place < 0 or net.is_fitted or net.starts_at_zero(net.layers[place][0]):
        return ""
    below = {name for name, _ in net.layers[: place + 1]}
    if not all(w.zero for w in net.weights_at(net.start) if w.is_matrix and w.module in below):
        return ""  # training did it
    dead = any(
        (m.dead or 0) > MOSTLY or (m.dispersion is not None and m.dispersion < ALIKE) or m.rms == 0 for m in net.modules
    )
    return "" if dead else net.layers[place][0]


def _idle_sibling(net: NetworkMoment, lost: Sequence[SeenWeight]) -> str:
    """A module of a list that did not run, where the others did, each on all rows and on a state of its own.

    Experts that no row was sent to are none: the others get parts of the rows, or all read the same.
    """
    for weight in lost:
        parts = weight.fact.name.split(".")
        for at, part in enumerate(parts):
            if not part.isdigit() or weight.module.startswith(".".join(parts[: at + 1])):
                continue
            prefix, rest = ".".join(parts[:at]), ".".join(parts[at + 1 :])
            named = [w for w in net.facts.weights if w.name.endswith(f".{rest}") and w.name.startswith(f"{prefix}.")]
            others = {
                w.name.split(".")[at] for w in named if w.name != weight.fact.name and w.shape == weight.fact.shape
            }
            ran = [_first_inside(net, f"{prefix}.{other}") for other in others if other.isdigit()]
            sources = {m.fact.source for m in ran if m is not None and m.dispersion is not None}
            chain = len(ran) >= FEWEST_SIBLINGS or any(_hands_on(net, f"{prefix}.{other}") for other in others)
            if chain and len(sources) == len(ran) > 0:
                return ".".join(parts[: at + 1])
    return ""


def _hands_on(net: NetworkMoment, name: str) -> bool:
    """Whether a module is a tap that weights come after; one of several heads is not."""
    after = [w.module for w in net.weights if w.is_matrix and w.module and not w.module.startswith(name)]
    places = {m.name: m.place for m in net.modules}
    return name in net.facts.taps and any(places.get(other, -1) > places.get(name, -1) for other in after)


def _first_inside(net: NetworkMoment, name: str) -> SeenModule | None:
    return next((m for m in net.modules if m.name == name or m.name.startswith(f"{name}.")), None)
