"""Does learned feedback find the weights? BP, FA, the weight mirror and Kolen–Pollack on a net of one hidden layer.

The setting of Akrout et al.'s published logs: CIFAR-10, 3072-1000-10, sigmoid, plain SGD, batch 128, 400 epochs. Their
Kolen–Pollack run has a rate of .3 and no decay, the others .05; crops and flips, softmax and cross-entropy are ours.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from creditscope.paper.studies import Study, choose_scale, register_study
from creditscope.paper.studies._recipes import SEEDS

SGD = {"net": "mlp", "optimiser": "sgd", "schedule": "constant", "weight_decay": 0.0, "tier": "quick"}
SGD |= {"snapshot_every": 0, "snapshot_at": "1,10,100"}
SCALES: dict[str, dict[str, Any]] = {
    "paper": {"task": "cifar10", "epochs": 400, "net_options": {"depth": 1, "width": 1000, "activation": "sigmoid"}},
    "demo": {"task": "mnist1d", "epochs": 60, "net_options": {"depth": 1, "width": 128, "activation": "sigmoid"}},
    "test": {"task": "mnist1d", "epochs": 1, "net_options": {"depth": 1, "width": 16, "activation": "sigmoid"}},
}
RULES: tuple[dict[str, Any], ...] = (
    {"rule": "bp", "lr": 0.05},
    {"rule": "fa", "lr": 0.05},
    {"rule": "fa", "lr": 0.05, "rule_options": {"scale": "match-init"}},
    {"rule": "wm", "lr": 0.05},
    {"rule": "kp", "lr": 0.3, "rule_options": {"decay": 0.0}},
)
"""Learning rates as published; FA at the scale of W, too, because theirs is not known."""


@register_study("weight_transport")
def weight_transport(scale: str = "demo", *, seeds: Sequence[int] = SEEDS) -> Study:
    """Every rule on every seed."""
    recipe = choose_scale(SCALES, scale)
    return Study("weight_transport", tuple({**SGD, **recipe, **rule, "seed": s} for rule, s in product(RULES, seeds)))
