"""Records of watched networks made in memory: a healthy one by default, any field overridden by keyword."""

from collections.abc import Mapping, Sequence
from typing import Any

from builders import make_snapshot, make_weights, spread

from creditscope.auditing.methods import Moment
from creditscope.record import (
    CutFacts,
    Facts,
    ModuleFact,
    ModuleMeasures,
    OutputMeasures,
    Provenance,
    Record,
    RuleFacts,
    Snapshot,
    WeightFact,
)

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


SICK: dict[str, Any] = {
    "CS101": {"output": {"probabilities": 1.0}},
    "CS102": {"modules": {"finite": (1, 1, 0.9, 0, 0)}},
    "CS103": {"weights": {"reached": (0, 0, 1, 1, 1)}},
    "CS104": {"loss": 9000.0, "modules": {"rms": (4, 40, 400, 4000, 40000)}, "output": {"rms": 40000.0}},
    "CS105": {"weights": {"exact_norm": (1e-9, 1e-7, 1e-5, 1e-3, 1e-1)}},
    "CS106": {"modules": {"dead": (0, 58 / 64, 0.1, 0, None)}},
    "CS107": {"modules": {"saturated": (0.2, 0.93, 0.95, 0.2, None)}},
    "CS108": {"modules": {"dispersion": (0.8, 0.1, 1e-4, 1e-6, 1e-6)}},
}
"""What a snapshot of an ill network has, that of a healthy one has not."""
MOVED: dict[str, Any] = {
    "CS109": {"weights": {"changed": (1, 1, 0, 1, 1), "update": (0.01, 0.01, 0, 0.01, 0.01)}},
    "CS110": {"weights": {"update": 1e-7}, "loss": 2.296},
}
"""The same of a second one."""


def network_start(facts: Facts | None = None, **others: Any) -> Snapshot:
    """A healthy net before training."""
    given = {"epoch": 0, "step": 0, "loss": 2.3, "untrained": True, "weights": {"changed": None, "update": None}}
    return network_snapshot(facts or network_facts(), **given | others)


def bad_moment(code: str) -> Moment:
    """Of a network that has this and nothing else."""
    facts = network_facts(cuts=CutFacts(detached=("blocks.1",)) if code == "CS103" else None)
    taken = network_snapshot(facts, **(SICK | MOVED)[code])
    return network_moment(*([network_start(facts)] if code in MOVED else []), taken, facts=facts)


def network_record(moment: Moment) -> Record:
    """The record that a moment is of."""
    provenance = Provenance(facts=moment.facts, engine="watch", status="complete")
    return Record(None, provenance, moment.history or (moment.snapshot,))
