"""Does a penalty on what blocks add rescue DFA, and what does it cost? With the nulls and controls that say so."""

from collections.abc import Sequence
from typing import Any

from creditscope.paper.early import EARLY_UNTIL
from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import DEMO, FROZEN, PAPER, SEEDS, TEN_SEEDS, TEST

WEAK, STRONG = 1e-4, 1e-2
EARLY = tuple(range(1, EARLY_UNTIL + 1))
"""Epochs at which DFA is measured in full, to be read before its stream has exploded."""
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"recipe": {**DEMO, "epochs": 30}, "seeds": SEEDS},
    "paper": {"recipe": {**PAPER, "epochs": 30}, "seeds": TEN_SEEDS},
    "test": {"recipe": {**TEST, "epochs": 3}, "seeds": SEEDS[:2]},
}


@register_study("penalty_rescue")
def penalty_rescue(scale: str = "demo", *, seeds: Sequence[int] = (), credit_norm: str = "none") -> Study:
    """DFA plain, once more for its first epochs, and under two penalties; BP without and with; frozen blocks."""
    chosen = choose_scale(SCALES, scale)
    recipe = chosen["recipe"]
    dfa = {**recipe, "rule": "dfa", "credit_norm": credit_norm}
    early = ",".join(str(epoch) for epoch in EARLY if epoch < recipe["epochs"])
    conditions = [
        dfa,
        {**dfa, "tier": "full", "snapshot_every": 0, "snapshot_at": early},
        {**dfa, "penalty": WEAK},
        {**dfa, "penalty": STRONG},
        {**recipe, "rule": "bp"},
        {**recipe, "rule": "bp", "penalty": STRONG},
        {**dfa, **FROZEN},
        {**recipe, **FROZEN, "rule": "bp"},
    ]
    return Study("penalty_rescue", over_seeds(conditions, seeds or chosen["seeds"]))
