"""Why does BP return zero in a deep GCN? The collapsing recipe with one thing changed at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import TWENTY_SEEDS
from creditscope.paper.studies.bp_bottleneck import DEPTHS, PLAIN, RECIPE, TINY
from creditscope.paper.studies.graph_depth import SQRT2
from creditscope.record import RunSpec

NET = {name: PLAIN[name] for name in ("gain", "residual", "norm", "propagate")}
FIELDS = {**{name: RECIPE[name] for name in ("weight_decay", "decay_on", "optimiser")}, "precision": "float32"}
"""What controls change, as it is in the recipe."""


@dataclass(frozen=True)
class Control:
    """One thing changed of the recipe: fields of the spec, options of the net, the normalisation of Â.

    `blames` is what would be a cause if the change alone removed the collapse of the runs it is held `against`, by
    default the baseline's.
    """

    name: str
    blames: str
    fields: dict[str, Any] = field(default_factory=dict)
    net: dict[str, Any] = field(default_factory=dict)
    normalisation: str = "symmetric"
    against: "Control | None" = None

    def run(self, recipe: dict[str, Any], *, width: int, depth: int) -> dict[str, Any]:
        """The fields of its runs at a depth."""
        net = {**PLAIN, **self.net, "width": width, "depth": depth}
        task = {**recipe["task_options"], "normalisation": self.normalisation}
        return {**recipe, **self.fields, "net_options": net, "task_options": task}

    def holds(self, spec: RunSpec) -> bool:
        """Whether a run is one of this control."""
        fields, net = {**FIELDS, **self.fields}, {**NET, **self.net}
        return (
            all(getattr(spec, name) == value for name, value in fields.items())
            and all(spec.net_options.get(name) == value for name, value in net.items())
            and spec.task_options.get("normalisation") == self.normalisation
        )


BASELINE = Control("baseline", "")
ROW = Control("row-normalised Â", "the symmetric Â", normalisation="row")
CONTROLS = (
    BASELINE,
    Control("decay on the first layer only", "weight decay", {"decay_on": "first"}),
    Control("no decay", "weight decay", {"weight_decay": 0.0}),
    Control("decoupled decay", "the decay's coupling to Adam", {"optimiser": "adamw"}),
    Control("gain √2", "small initial weights", net={"gain": SQRT2}),
    Control("gain 2", "small initial weights", net={"gain": 2.0}),
    Control("SGD", "Adam", {"optimiser": "sgd"}),
    Control("float64", "float32", {"precision": "float64"}),
    Control("Â = I", "smoothing by Â", net={"propagate": False}),
    Control("residual", "the lack of a shortcut", net={"residual": True}),
    ROW,
    Control(
        "PairNorm on row-normalised Â", "the lack of PairNorm", net={"norm": "pair"}, normalisation="row", against=ROW
    ),
)
"""The recipe first."""
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"task": "sbm", "depths": (10, 16), "seeds": TWENTY_SEEDS[:3], "recipe": RECIPE},
    "paper": {"task": "cora", "depths": DEPTHS, "seeds": TWENTY_SEEDS[:10], "recipe": RECIPE},
    "test": {"task": "sbm", "depths": (3,), "seeds": TWENTY_SEEDS[:2], "recipe": TINY, "width": 8},
}


@register_study("bottleneck_controls")
def bottleneck_controls(scale: str = "demo", *, depths: Sequence[int] = (), seeds: Sequence[int] = ()) -> Study:
    """BP under every control at every depth; the untrained net is the baseline's first snapshot."""
    chosen = choose_scale(SCALES, scale)
    recipe, width = {**chosen["recipe"], "task": chosen["task"]}, chosen.get("width", PLAIN["width"])
    grid = product(depths or chosen["depths"], CONTROLS)
    conditions = [control.run(recipe, width=width, depth=depth) for depth, control in grid]
    return Study("bottleneck_controls", over_seeds(conditions, seeds or chosen["seeds"]))
