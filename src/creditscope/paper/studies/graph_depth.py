"""Which rule still trains a deep GCN, and does it beat BP once BP is given a fair start? Accuracy and Γ over depth."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import TWENTY_SEEDS
from creditscope.paper.studies.bp_bottleneck import PLAIN, RECIPE, TINY
from creditscope.record import RunSpec

SQRT2 = 2**0.5


@dataclass(frozen=True)
class Method:
    """A rule, and what of the recipe it changes."""

    rule: str
    gain: float = 1.0
    residual: bool = False
    decay: bool = True

    def fields(self, recipe: dict[str, Any], *, width: int, depth: int) -> dict[str, Any]:
        """The fields of its runs at a depth."""
        net = {**PLAIN, "width": width, "depth": depth, "gain": self.gain, "residual": self.residual}
        decay = {} if self.decay else {"weight_decay": 0.0}
        return {**recipe, "rule": self.rule, "net_options": net, **decay}


def method_of(spec: RunSpec) -> Method:
    """The method that a run belongs to."""
    gain, residual = spec.net_options.get("gain", 1.0), spec.net_options.get("residual", False)
    return Method(spec.rule, float(gain), bool(residual), decay=spec.weight_decay > 0)


BP_VARIANTS = tuple(
    Method("bp", gain, residual, decay)
    for decay, (gain, residual) in product((True, False), ((1.0, False), (SQRT2, False), (2.0, False), (1.0, True)))
)
"""BP by the recipe first, then with larger initial weights and with a residual; then all of them without decay."""
RULES = tuple(map(Method, ("dfa", "dfa_gnn", "grape", "kaft")))
METHODS = (*BP_VARIANTS, *RULES)
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"tasks": ("sbm",), "depths": (2, 4, 8, 12), "seeds": TWENTY_SEEDS[:3], "recipe": RECIPE},
    "paper": {
        "tasks": ("cora", "citeseer", "pubmed"),
        "depths": (2, 4, 6, 8, 10, 16, 20, 32),
        "seeds": TWENTY_SEEDS[:5],
        "recipe": RECIPE,
        "descent_to": 10,
    },
    "test": {"tasks": ("sbm",), "depths": (2, 3), "seeds": TWENTY_SEEDS[:2], "recipe": TINY, "width": 8},
}
"""`descent_to`: the depth up to which rules other than BP are measured at tier standard, because credit that is aligned
has to lower the loss too before it is believed; deeper nets have mostly collapsed."""


@register_study("graph_depth")
def graph_depth(
    scale: str = "demo",
    *,
    tasks: Sequence[str] = (),
    depths: Sequence[int] = (),
    seeds: Sequence[int] = (),
    methods: Sequence[Method] = METHODS,
) -> Study:
    """Every method at every depth on every graph; `tasks`, `depths` and `seeds` replace those of the scale."""
    chosen = choose_scale(SCALES, scale)
    recipe, width = chosen["recipe"], chosen.get("width", PLAIN["width"])
    rich, conditions = chosen.get("descent_to", 0), []
    for task, depth, method in product(tasks or chosen["tasks"], depths or chosen["depths"], methods):
        tier = {"tier": "standard"} if method in RULES and depth <= rich else {}
        conditions.append({**method.fields(recipe, width=width, depth=depth), **tier, "task": task})
    return Study("graph_depth", over_seeds(conditions, seeds or chosen["seeds"]))
