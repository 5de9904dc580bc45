"""Deep GCNs by backprop: what each layer is told, and what it knows, at the end of training."""

from collections.abc import Sequence
from typing import Any

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import SEEDS, TWENTY_SEEDS

DEPTHS = (6, 10, 20)
RECIPE = {
    "task": "cora",
    "task_options": {"normalisation": "symmetric"},
    "net": "gcn",
    "rule": "bp",
    "epochs": 100,
    "optimiser": "adam",
    "lr": 0.01,
    "schedule": "constant",
    "weight_decay": 5e-4,
    "decay_on": "all",
    "snapshot_every": 0,
    "tier": "quick",
}
"""Adam with its decay as an L2 term on every layer; runs are measured before and after training."""
TINY = {**RECIPE, "task": "sbm", "task_options": {"normalisation": "symmetric", "nodes": 200}, "epochs": 2}
"""For tests."""
PLAIN = {"width": 64, "dropout": 0.0, "gain": 1.0, "residual": False, "norm": "none", "propagate": True}
"""Every option of the net, so that a variant of it is not taken for the plain one."""
SCALES: dict[str, dict[str, Any]] = {
    "paper": {"recipe": RECIPE, "net": PLAIN, "depths": DEPTHS, "seeds": TWENTY_SEEDS},
    "demo": {"recipe": {**RECIPE, "task": "sbm"}, "net": PLAIN, "depths": DEPTHS, "seeds": SEEDS},
    "test": {"recipe": TINY, "net": {**PLAIN, "width": 8}, "depths": (3, 5), "seeds": (1, 2)},
}


@register_study("bp_bottleneck")
def bp_bottleneck(scale: str = "demo", *, seeds: Sequence[int] = (), depths: Sequence[int] = ()) -> Study:
    """A plain GCN at every depth and seed; "paper" is Cora with 20 seeds, "demo" the embedded graph with 3."""
    chosen = choose_scale(SCALES, scale)
    nets = [{**chosen["net"], "depth": depth} for depth in depths or chosen["depths"]]
    conditions = [{**chosen["recipe"], "net_options": net} for net in nets]
    return Study("bp_bottleneck", over_seeds(conditions, seeds or chosen["seeds"]))
