"""Records of watched networks made in memory: a healthy one by default, any field overridden by keyword."""

from collections.abc import Mapping, Sequence
from typing import Any

from builders import make_snapshot, make_weights, spread

from creditscope.auditing.methods import Moment
from creditscope.record import Facts, ModuleFact, ModuleMeasures, OutputMeasures, RuleFacts, Snapshot, WeightFact

LAYERS = ("stem", "blocks.0", "blocks.1", "blocks.2", "head")
HEALTHY_MODULES = {
    "rms": 1.0,
    "dispersion": 0.8,
    "token_dispersion": None,
    "rank": 12.0,
    "dead": 0.05,
    "saturated": None,
    "dropped": None,
    "finite": 1.0,
}
HEALTHY_OUTPUT = {
    "rms": 1.0,
    "dispersion": 0.9,
    "best_constant_loss": 2.3,
    "sure": 0.0,
    "probabilities": 0.0,
    "log_probabilities": 0.0,
    "bounded": 0,
    "loss_has_softmax": 1,
    "loss_is_likelihood": 0,
    "classes": 10,
    "largest_label": 9.0,
    "targets_differ": 1,
}


def network_facts(layers: Sequence[str] = LAYERS, **others: Any) -> Facts:
    """Linear layers of 64 units, one tap each, watched under backprop."""
    count = len(layers)
    given: dict[str, Any] = {
        "rule": RuleFacts(name="bp", label="BP"),
        "taps": tuple(layers),
        "tap_shapes": ((64,),) * count,
        "stem_tap": True,
        "exact_taps": tuple(range(count)),
        "weights": tuple(
            WeightFact(name=f"{name}.weight", stage=i, role="rule", shape=(64, 64)) for i, name in enumerate(layers)
        ),
        "classes": 10,
        "chance": 0.1,
        "best_constant": 0.106,
        "trainer": False,
        "modules": tuple(ModuleFact(name=name, kind="Linear", units=64, owner=name) for name in layers),
    }
    return Facts(**given | others)


def network_snapshot(
    facts: Facts,
    *,
    modules: Mapping[str, Any] | None = None,
    weights: Mapping[str, Any] | None = None,
    output: Mapping[str, Any] | None = None,
    **others: Any,
) -> Snapshot:
    """One moment; overrides are one number for all modules or weights, or one each."""
    healthy = {"w_norm": 8.0, "reached": 1, "unit_spread": 0.9, "update": 0.01, "changed": 1}
    given = {
        "modules": ModuleMeasures(**spread(len(facts.modules), HEALTHY_MODULES | dict(modules or {}))),
        "weights": make_weights(len(facts.weights), **healthy | dict(weights or {})),
        "output": OutputMeasures(**HEALTHY_OUTPUT | dict(output or {})),
        "loss": 1.6,
    }
    return make_snapshot(facts, **given | others)


def network_moment(*snapshots: Snapshot, facts: Facts | None = None) -> Moment:
    """The last of these, after the others."""
    facts = facts or network_facts()
    found = snapshots or (network_snapshot(facts),)
    return Moment(facts, found[-1], None, None, tuple(found))
