"""Runs that only the reproduction table needs: other settings behind published numbers, one thing changed at a time."""

from collections.abc import Sequence
from typing import Any

from creditscope.paper.studies import Study, choose_scale, cross_architecture, drop_repeated, over_seeds, register_study
from creditscope.paper.studies import _recipes as recipes
from creditscope.paper.studies._recipes import AT_THE_END, FROZEN, SEEDS, THIN, TWENTY_SEEDS, without_norm
from creditscope.paper.studies.bp_bottleneck import PLAIN, RECIPE
from creditscope.paper.studies.graph_depth import BP_VARIANTS, Method
from creditscope.paper.studies.penalty_rescue import penalty_rescue

NORMALISED = ("batch", "sample")
EVERY_EPOCH = {**AT_THE_END, "snapshot_every": 1}
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"recipe": recipes.DEMO, "short": 30, "width": 256, "seeds": SEEDS},
    "paper": {
        "recipe": recipes.PAPER,
        "short": 30,
        "width": 512,
        "seeds": SEEDS,
        "fa_seeds": TWENTY_SEEDS,
        "graph_seeds": TWENTY_SEEDS[:5],
    },
    "test": {"recipe": recipes.TEST, "short": 1, "width": 24, "seeds": SEEDS[:2]},
}


@register_study("reproduction")
def reproduction(scale: str = "demo", *, seeds: Sequence[int] = ()) -> Study:
    """Credit norms, feedback through the head, trainers of the baseline, width, random targets, the depth ladder.

    Scale "paper" has deep GCNs on Cora, too.
    """
    chosen = choose_scale(SCALES, scale)
    conditions = _conditions(chosen["recipe"], width=chosen["width"], short=chosen["short"])
    *_, student = cross_architecture.SCALES[scale]["recipes"]
    conditions += [{**student, **EVERY_EPOCH, "rule": "dfa", "credit_norm": norm} for norm in NORMALISED]
    asked, seeds = seeds, seeds or chosen["seeds"]
    fa = {**chosen["recipe"], **THIN, "rule": "fa"}
    runs = over_seeds(conditions, seeds) + over_seeds([fa], asked or chosen.get("fa_seeds", seeds))
    for norm in NORMALISED:
        runs += penalty_rescue(scale, seeds=seeds, credit_norm=norm).runs
    if "graph_seeds" in chosen:
        runs += over_seeds(_graphs(), asked or chosen["graph_seeds"])
    return Study("reproduction", drop_repeated(runs))


def _conditions(recipe: dict[str, Any], *, width: int, short: int) -> list[dict[str, Any]]:
    plain, wide = without_norm(recipe), {**recipe, "net_options": {**recipe["net_options"], "width": width}}
    brief, depth = {**recipe, **AT_THE_END, "epochs": short}, recipe["net_options"]["depth"]
    normalised = [{"credit_norm": norm} for norm in NORMALISED]
    norms = [{"credit_norm": "none"}, *normalised]
    frozen = {**recipe, **FROZEN}
    exact_head = {"rule": "fa", "rule_options": {"head": "exact"}}
    return [
        *({**net, "rule": "dfa", **norm} for net in (recipe, plain) for norm in normalised),
        *({**recipe, **THIN, "rule": "block_fa", **norm} for norm in normalised),
        {**recipe, **THIN, **exact_head},
        *({**wide, **THIN, "rule": rule} for rule in ("bp", "dfa")),
        *({**recipe, **THIN, "rule": "dfa", "targets": "random", **norm} for norm in norms),
        *({**frozen, "rule": rule, **norm} for rule in ("dfa", "block_fa") for norm in norms),
        *({**frozen, **rule} for rule in ({"rule": "bp"}, {"rule": "fa"}, exact_head)),
        *({**without_norm(frozen), "rule": rule} for rule in ("bp", "dfa")),
        *({**brief, "rule": rule, "train_last": last} for rule in ("bp", "dfa") for last in range(1, depth)),
    ]


def _graphs() -> list[dict[str, Any]]:
    """Published GCNs on Cora that study `graph_depth` has no run of: its recipe, deeper or stopped early."""
    deep, few = {"width": PLAIN["width"], "depth": 64}, {"width": PLAIN["width"], "depth": 4}
    return [
        *(method.fields(RECIPE, **deep) for method in BP_VARIANTS),
        *({**Method(rule).fields(RECIPE, **few), "epochs": 50} for rule in ("bp", "kaft")),
    ]
