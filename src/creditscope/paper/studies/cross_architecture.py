"""BP, FA and DFA over training in three architectures: a transformer, an MLP without terminal norm, one without any."""

from collections.abc import Sequence
from typing import Any

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies import snapshot_vit as vit
from creditscope.paper.studies._recipes import DEMO, PAPER, SEEDS, STUDENT, TEST, without_norm

RULES = ("bp", "fa", "dfa")
TEACHER: dict[str, Any] = {
    "task": "teacher",
    "task_options": {"alpha": 1.0},
    "net": "student",
    "net_options": STUDENT,
    "epochs": 80,
}
SCALES: dict[str, dict[str, Any]] = {
    "paper": {"recipes": (vit.SCALES["paper"]["recipe"], without_norm(PAPER), TEACHER), "seeds": SEEDS},
    "demo": {
        "recipes": (vit.SCALES["demo"]["recipe"], without_norm(DEMO), {**TEACHER, "epochs": 20, "tier": "quick"}),
        "seeds": SEEDS,
    },
    "test": {
        "recipes": (
            vit.SCALES["test"]["recipe"],
            without_norm(TEST),
            {**TEACHER, "net_options": {**STUDENT, "width": 8}, "epochs": 1, "eval_rows": 64, "tier": "quick"},
        ),
        "seeds": SEEDS[:2],
    },
}


@register_study("cross_architecture")
def cross_architecture(scale: str = "demo", *, seeds: Sequence[int] = ()) -> Study:
    """Three rules in every architecture, on the same seeds, so that no row rests on others than the next."""
    chosen = choose_scale(SCALES, scale)
    conditions = [{**recipe, "rule": rule} for recipe in chosen["recipes"] for rule in RULES]
    return Study("cross_architecture", over_seeds(conditions, seeds or chosen["seeds"]))
