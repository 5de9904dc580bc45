"""BP and DFA over the training of a small vision transformer, on the class token."""

from collections.abc import Sequence
from typing import Any

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import PAPER, SEEDS, VIT

RULES = ("bp", "dfa")
SMALL: dict[str, Any] = {
    "task": "digits",
    "task_options": {"image": True},
    "net": "vit",
    "net_options": {**VIT, "width": 32, "patch": 2},
    "epochs": 20,
    "tier": "quick",
}
"""Embedded images of 8×8 pixels."""
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"recipe": SMALL, "seeds": SEEDS},
    "paper": {"recipe": {**PAPER, "net": "vit", "net_options": VIT}, "seeds": SEEDS},
    "test": {
        "recipe": {**SMALL, "net_options": {**VIT, "depth": 2, "width": 8, "heads": 2}, "epochs": 2, "eval_rows": 64},
        "seeds": SEEDS[:2],
    },
}


@register_study("snapshot_vit")
def snapshot_vit(scale: str = "demo", *, seeds: Sequence[int] = ()) -> Study:
    """Two rules by one recipe; "paper" is CIFAR-10, "demo" scikit-learn's digits; three seeds."""
    chosen = choose_scale(SCALES, scale)
    conditions = [{**chosen["recipe"], "rule": rule} for rule in RULES]
    return Study("snapshot_vit", over_seeds(conditions, seeds or chosen["seeds"]))
