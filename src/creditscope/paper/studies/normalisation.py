"""Is random feedback poor, or its normalisation? DFA by credit norm, penalty λ, optimiser and terminal LayerNorm."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from creditscope.paper.studies import Study, choose_scale, register_study
from creditscope.paper.studies._recipes import AT_THE_END, DEMO, FROZEN, PAPER, SEEDS, TEST

NORMS = ("none", "batch", "sample")
PENALTIES = (0.0, 1e-2)
ALL_PENALTIES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
ADAMW = {"optimiser": "adamw"}
SGD = {"optimiser": "sgd", "lr": 0.02, "weight_decay": 5e-4}
"""The largest rate of 0.01, 0.02, 0.05, 0.2 at which DFA with λ = 1e-2 stays finite under every norm (tried on seed 7,
which is not in the study). The decay is such that weights shrink per step as under AdamW: lr · decay = 1e-5."""
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"recipe": DEMO, "optimisers": (ADAMW, SGD)},
    "paper": {"recipe": {**PAPER, "epochs": 30}, "optimisers": (ADAMW,)},
    "test": {"recipe": TEST, "optimisers": (ADAMW, SGD)},
}
"""SGD's rate was chosen for the embedded task, so it is left out of the other."""


@register_study("normalisation")
def normalisation(
    scale: str = "demo", *, seeds: Sequence[int] = SEEDS, penalties: Sequence[float] = PENALTIES
) -> Study:
    """DFA in every combination, frozen DFA under every norm, BP and frozen BP; the full list of λ is `ALL_PENALTIES`.

    A penalty has nothing to act on in frozen blocks, so one frozen run serves every λ.
    """
    chosen = choose_scale(SCALES, scale)
    recipe, runs = {**chosen["recipe"], **AT_THE_END}, []
    for optimiser, terminal, seed in product(chosen["optimisers"], (True, False), seeds):
        net = {**recipe["net_options"], "terminal_norm": terminal}
        setting = {**recipe, **optimiser, "net_options": net, "seed": seed}
        dfa = [{**setting, "rule": "dfa", "credit_norm": norm} for norm in NORMS]
        runs += [{**one, "penalty": penalty} for one in dfa for penalty in penalties]
        runs += [{**one, **FROZEN} for one in dfa]
        runs += [{**setting, "rule": "bp", **frozen} for frozen in ({}, FROZEN)]
    return Study("normalisation", tuple(runs))
