"""A watched network layer by layer: what its modules gave, what gradient got there, and how far the weights moved."""

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.auditing.checks import Finding
from creditscope.auditing.checks._network import NetworkMoment
from creditscope.auditing.methods import Method, Moment


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleRow:
    """One module at the last snapshot; None where nothing was measured, or nothing is there to measure."""

    name: str
    kind: str
    codes: tuple[str, ...] = ()
    """Checks that fired here."""
    rms: float | None
    dispersion: float | None
    """How much rows (else tokens) differ, over the size."""
    dead: float | None
    saturated: float | None
    gradient: float | None
    """‖∇W‖·‖W‖ over the largest of all layers; of its matrices the largest."""
    update: float | None
    """‖ΔW‖/‖W‖ since the snapshot before; of its matrices the largest."""


def module_rows(method: Method, findings: Sequence[Finding]) -> tuple[ModuleRow, ...]:
    """Layers with matrices (else taps) and places that a check names, in the order of the forward; () for a rule."""
    if not method.facts.is_network or not method.facts.modules:
        return ()
    net = NetworkMoment(Moment.of(method.first))
    fired: dict[str, tuple[str, ...]] = {}
    for f in sorted(findings, key=lambda f: f.rank):
        if f.where and f.is_issue:
            fired[f.where] = (*fired.get(f.where, ()), f.code)
    gradients, updates = dict(net.layers), _updates(net)
    largest = max(gradients.values(), default=0.0) or None
    layers = {w.module for w in net.weights if w.is_matrix} or set(method.facts.taps)
    shown = layers | set(fired)
    rows: dict[str, ModuleRow] = {}
    for module in net.modules:
        if module.name not in shown or module.name in rows:
            continue
        own = [m for m in net.modules if m.owner == module.name]  # its activation has its units
        size = gradients.get(module.name)
        rows[module.name] = ModuleRow(
            name=module.name,
            kind=module.fact.kind,
            codes=fired.get(module.name, ()),
            rms=module.rms,
            dispersion=module.dispersion if module.token_dispersion is None else module.token_dispersion,
            dead=max((m.dead for m in own if m.dead is not None), default=None),
            saturated=max((m.saturated for m in own if m.saturated is not None), default=None),
            gradient=None if size is None or largest is None else size / largest,
            update=updates.get(module.name),
        )
    return tuple(rows.values())


def _updates(net: NetworkMoment) -> dict[str, float]:
    """The largest update of the matrices of each module."""
    found: dict[str, float] = {}
    for weight in net.weights:
        if weight.is_matrix and weight.update is not None:
            found[weight.module] = max(found.get(weight.module, 0.0), weight.update)
    return found
