"""Is random feedback poor, or its normalisation? DFA by credit norm, penalty λ, optimiser and terminal LayerNorm."""

from collections.abc import Sequence
from itertools import product

from creditscope.studies import Study, choose_scale, register_study
from creditscope.studies.audit_hero import DEMO, SEEDS

NORMS = ("none", "batch", "sample")
PENALTIES = (0.0, 1e-2)
ALL_PENALTIES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
ADAMW = {"optimiser": "adamw"}
SGD = {"optimiser": "sgd", "lr": 0.02, "weight_decay": 5e-4}
"""The largest rate of 0.01, 0.02, 0.05, 0.2 at which DFA with λ = 1e-2 stays finite under every norm (tried on seed 7,
which is not in the study). The decay is such that weights shrink per step as under AdamW: lr · decay = 1e-5."""
SCALES = {
    "demo": DEMO,
    "test": {**DEMO, "net_options": {"depth": 3, "width": 16}, "epochs": 2, "eval_rows": 128},
}
AT_THE_END = {"snapshot_every": 0, "noise": False, "tier": "quick"}
"""Runs are read at their end only, for accuracy, cosine and growth."""


@register_study("normalisation")
def normalisation(
    scale: str = "demo", *, seeds: Sequence[int] = SEEDS, penalties: Sequence[float] = PENALTIES
) -> Study:
    """DFA in every combination, frozen DFA under every norm, BP and frozen BP; the full list of λ is `ALL_PENALTIES`.

    A penalty has nothing to act on in frozen blocks, so one frozen run serves every λ.
    """
    recipe = {**choose_scale(SCALES, scale), **AT_THE_END}
    runs = []
    for optimiser, terminal, seed in product((ADAMW, SGD), (True, False), seeds):
        net = {**recipe["net_options"], "terminal_norm": terminal}
        setting = {**recipe, **optimiser, "net_options": net, "seed": seed}
        dfa = [{**setting, "rule": "dfa", "credit_norm": norm} for norm in NORMS]
        runs += [{**one, "penalty": penalty} for one in dfa for penalty in penalties]
        runs += [{**one, "frozen": True} for one in dfa]
        runs += [{**setting, "rule": "bp", "frozen": frozen} for frozen in (False, True)]
    return Study("normalisation", tuple(runs))
