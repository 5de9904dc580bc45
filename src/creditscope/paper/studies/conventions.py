"""The rules as the published runs had them: three conventions that decide their numbers, all at once."""

from collections.abc import Sequence
from typing import Any

from creditscope.paper.studies import Study, choose_scale, cross_architecture, drop_repeated, over_seeds, register_study
from creditscope.paper.studies._recipes import AT_THE_END, FROZEN, PAPER, SEEDS, TEST, THIN, TWENTY_SEEDS, without_norm
from creditscope.paper.studies.penalty_rescue import STRONG, WEAK
from creditscope.paper.studies.reproduction import EVERY_EPOCH

BLOCK_FA = {"rule": "block_fa", "credit_norm": "sample-mean"}
"""Its chain runs on the gradient of the mean loss as it is; each block's share is normalised per sample."""
DFA = {"rule": "dfa", "rule_options": {"index": "input"}, "credit_norm": "sample"}
"""A block is told by the feedback of its input's tap."""
SCALES: dict[str, dict[str, Any]] = {
    "paper": {
        "recipe": PAPER,
        "short": 30,
        "width": 512,
        "depths": (2, 4, 6, 8, 12),
        "seeds": TWENTY_SEEDS[:6],
        "few": SEEDS,
    },
    "test": {"recipe": TEST, "short": 1, "width": 24, "depths": (1, 2), "seeds": SEEDS[:2], "few": SEEDS[:1]},
}


@register_study("conventions")
def conventions(scale: str = "paper", *, seeds: Sequence[int] = ()) -> Study:
    """Block FA and DFA by the published conventions, wherever a number was published; wide nets on fewer seeds."""
    chosen = choose_scale(SCALES, scale)
    *_, student = cross_architecture.SCALES[scale]["recipes"]
    recipe = chosen["recipe"]
    brief = {**recipe, "epochs": chosen["short"], "snapshot_every": 0}
    conditions = [
        {**recipe, **THIN, **BLOCK_FA},
        {**brief, **AT_THE_END, **BLOCK_FA, "penalty": STRONG},
        *({**net, **EVERY_EPOCH, **DFA} for net in (recipe, without_norm(recipe))),
        {**recipe, **FROZEN, **DFA},
        {**recipe, **AT_THE_END, **DFA, "targets": "redrawn"},
        {**brief, **AT_THE_END, **DFA},
        *({**brief, **DFA, "penalty": penalty} for penalty in (WEAK, STRONG)),
        {**student, **EVERY_EPOCH, **DFA},
    ]
    wide = {**wide_net(chosen, recipe["net_options"]["depth"]), **DFA}
    runs = over_seeds(conditions, seeds or chosen["seeds"]) + over_seeds([wide], seeds or chosen["few"])
    return Study("conventions", drop_repeated(runs))


def wide_net(chosen: dict[str, Any], depth: int) -> dict[str, Any]:
    """The wide net of a scale at a depth, read at its end."""
    options = {**chosen["recipe"]["net_options"], "width": chosen["width"], "depth": depth}
    return {**chosen["recipe"], **AT_THE_END, "net_options": options}
