"""What the league leaves open: rules over depth, DFA by penalty and norms, and settings of published numbers.

Depth is that of block A's net (A itself has L = 4). *phase* is DFA by λ, normalisation of credit and terminal norm. The
anchors stand for published numbers that the league should meet to be believed: the feedback-alignment table of LeNet,
PEPITA's one hidden layer, local against global losses, one-sided against centred nudging, the audit's EP and bridges,
and a convolutional net with batch norm.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from creditscope.paper.studies import Study, choose_scale, drop_repeated, register_study
from creditscope.paper.studies._league import LAMBDA, Block, Row, base
from creditscope.paper.studies._recipes import (
    AT_THE_END,
    DEMO,
    PAPER,
    RESMLP,
    SEEDS,
    TEN_SEEDS,
    TWENTY_SEEDS,
    without_norm,
)
from creditscope.paper.studies.league import LENET
from creditscope.record.spec import COMPARED_NORMS

FIVE_SEEDS = TWENTY_SEEDS[:5]
OVER_DEPTH = base("fa", "sign_fa", "kp", "wm", "dfa", "ldrl", "dni", "local", "forward_gradient")
PENALTIES = (0.0, 1e-4, 1e-3, LAMBDA, 1e-1)
PHASE = tuple(Row("dfa", penalties=PENALTIES, credit_norm=norm) for norm in COMPARED_NORMS)
SIGNS = (Row("sign_fa"), *(Row("sign_fa", {"variant": variant}) for variant in ("br", "fr")))
LOCAL = (Row("local"), Row("local", {"loss": "predsim"}))
NUDGING = tuple(Row("ep", {"beta": beta, **side}) for beta, side in product((0.5, 1.0), ({}, {"centred": False})))
AUDITED = (Row("state_bridge"), Row("credit_bridge"))
"""Under λ they were published after 30 epochs, which is block B, as is EP."""
LONG = {"LeNet": 3, "LeNet, slow": 3, "CNN": 3}
"""Seeds of blocks that take long."""
BIOTORCH = {"optimiser": "adam", "weight_decay": 1e-4, "schedule": "steps"}
"""What the configurations behind its table of LeNet say; FA and DFA have a tenth of the rate there."""
MLP = {"task": "cifar10", "net": "mlp", **AT_THE_END, "epochs": 100}
SGD = {"optimiser": "sgd", "lr": 0.1, "weight_decay": 0.0}
"""Plain, at the rate that momentum .9 makes of the published .01."""
CONVOLUTIONS = {"task": "cifar10", "net": "lenet", **AT_THE_END}
"""At the league's scale in TF32: convolutions are so by torch's default on a GPU."""
NORMED = {"norm": True, "padded": True}
ONE_LAYER = {"depth": 1, "width": 1024, "activation": "relu"}
DIGITS = {**AT_THE_END, "task": "digits", "epochs": 1, "eval_rows": 64}
TINY = {"width": 4, "padded": True}


def over_depth(recipe: dict[str, Any], depths: Sequence[int], seeds: Sequence[int]) -> dict[str, Block]:
    """A block for each depth of the recipe's net."""
    nets = {depth: {**recipe["net_options"], "depth": depth} for depth in depths}
    return {f"L{depth}": Block({**recipe, "net_options": net}, OVER_DEPTH, seeds) for depth, net in nets.items()}


def phases(recipe: dict[str, Any], seeds: Sequence[int]) -> dict[str, Block]:
    """With the terminal norm and without it."""
    return {"phase": Block(recipe, PHASE, seeds), "phase, no norm": Block(without_norm(recipe), PHASE, seeds)}


def anchors(
    nudged: dict[str, Any], audited: dict[str, Any], images: dict[str, Any], mlp: dict[str, Any], seeds: Sequence[int]
) -> dict[str, Block]:
    """The settings of published numbers, of accuracies alone: EP, the audit's net, LeNet, and plain MLPs."""
    lenet, deep = images["net_options"], {**mlp["net_options"], "depth": 3}
    normed = {**images, "epochs": audited["epochs"], "net_options": {**lenet, **NORMED}}
    blocks = {
        "nudging": (nudged, NUDGING),
        "audit": (audited, AUDITED),
        "LeNet": ({**images, **BIOTORCH}, SIGNS),
        "LeNet, slow": ({**images, **BIOTORCH, "lr": 1e-4}, (Row("fa"), Row("dfa"))),
        "CNN": (normed, (Row("dfa"),)),
        "PEPITA": ({**mlp, **SGD}, (Row("pepita"),)),
        "local": ({**mlp, "net_options": deep, "lr": 5e-4}, LOCAL),
    }
    return {
        name: Block(recipe, rows, seeds[: LONG.get(name)], twins=False, bp=name != "LeNet, slow")
        for name, (recipe, rows) in blocks.items()
    }


SMALL = {**DEMO, **DIGITS, "net_options": {**RESMLP, "depth": 2, "width": 16}}
SCALES = {
    "league": {
        **over_depth({**DEMO, **AT_THE_END}, (2, 6, 8, 10, 12), TEN_SEEDS),
        **phases({**PAPER, **AT_THE_END, "epochs": 30}, FIVE_SEEDS),
        **anchors(
            {**DEMO, **AT_THE_END},
            {**PAPER, **AT_THE_END},
            {**CONVOLUTIONS, "net_options": LENET, "epochs": 250, "precision": "tf32"},
            {**MLP, "net_options": ONE_LAYER},
            FIVE_SEEDS,
        ),
    },
    "test": {
        **over_depth(SMALL, (2, 3), SEEDS[:1]),
        **phases(SMALL, SEEDS[:1]),
        **anchors(
            SMALL,
            SMALL,
            {**CONVOLUTIONS, **DIGITS, "task_options": {"image": True}, "net_options": {**LENET, **TINY}},
            {**MLP, **DIGITS, "net_options": {**ONE_LAYER, "width": 16}},
            SEEDS[:1],
        ),
    },
}


@register_study("league_more")
def league_more(scale: str = "league", *, blocks: Sequence[str] = (), seeds: Sequence[int] = ()) -> Study:
    """Every block, or those named; read at their ends."""
    chosen = choose_scale(SCALES, scale)
    planned = [choose_scale(chosen, name) for name in blocks or chosen]
    return Study("league_more", drop_repeated(run for block in planned for run in block.plan(seeds)))
