"""Which rules use depth, and which number says so? Every rule on the same nets, data, seeds and optimiser.

Each row has its frozen twin and BP beside it, at the rule's defaults: nothing is tuned, and where the literature
insists on a knob (β, decay, the scale of feedback, λ) another value is another row. What the figures should show was
written down before the runs, in `paper/predictions/league.toml`.
"""

from collections.abc import Sequence

from creditscope.paper.studies import Study, choose_scale, drop_repeated, register_study
from creditscope.paper.studies._league import MOMENTS, Block, Row, base
from creditscope.paper.studies._recipes import DEMO, PAPER, RESMLP, SEEDS, TEN_SEEDS, TWENTY_SEEDS, VIT
from creditscope.paper.studies.bp_bottleneck import PLAIN, RECIPE, TINY
from creditscope.paper.studies.graph_depth import SQRT2

FIVE_SEEDS = TWENTY_SEEDS[:5]
EVERY_RULE = (
    *base("fa", "sign_fa", "kp", "wm", "dfa", "drtp", "dkp", "fdfa", "grape", "block_fa", "ldrl", "dtp", "dni"),
    *base("state_bridge", "credit_bridge", "forward_gradient", "pepita", "pc", "local"),
)
"""All that fit a net of vectors but EP, whose steps differ from block to block."""
KNOBS = (
    Row("fa", {"scale": "match-init"}),
    Row("kp", {"decay": 0.01}),
    Row("pc", {"inputs": "settled"}),
    Row("pc", {"steps": 5, "rate": 0.001}),
)
"""Contested ones: the scale of random feedback, decay, the states that stages learn at, and settling as published."""
CHEAP_KNOBS = (
    Row("fa", {"scale": "init"}),
    Row("sign_fa", {"variant": "fr"}),
    Row("sign_fa", {"variant": "br"}),
    Row("dfa", {"error": "sign"}),
    Row("ldrl", {"feedback": "learned"}),
    Row("forward_gradient", {"probes": 16}),
    Row("pepita", {"scale": 1.0}),
)
"""More of them where runs are short."""
NUDGED = (Row("ep"), Row("ep", {"beta": 0.1}))
NUDGED_BRIEFLY = tuple(Row("ep", {**row.options, "steps": 4}) for row in NUDGED)
ON_TOKENS = (
    *base("fa", "sign_fa", "kp", "wm", "dfa", "dkp", "ldrl", "local"),
    *base("forward_gradient", joint=True),
    Row("pc", {"steps": 5, "rate": 0.001}),
)
ON_IMAGES = tuple(Row(rule) for rule in ("fa", "sign_fa", "kp", "wm", "dfa", "dkp", "drtp", "local"))
ON_IMAGES += (Row("sign_fa", {"variant": "fr"}), Row("kp", {"decay": 0.01}))
ON_GRAPHS = tuple(Row(rule) for rule in ("fa", "sign_fa", "kp", "wm", "dfa", "dfa_gnn", "grape", "fdfa", "kaft"))
ON_GRAPHS += (Row("dkp"), Row("drtp"), Row("ldrl"), Row("local"), Row("kp", {"decay": 0.01}))
"""Nets without skips know no penalty."""
FEW = (*base("wm", "dfa"), Row("forward_gradient"))
LENET = {"width": 32, "dense": 84, "norm": False, "padded": False}
GRAPH = {**RECIPE, **MOMENTS, "epochs": 200, "decay_on": "first"}
GRAPH_NET = {**PLAIN, "gain": SQRT2}
ON_CIFAR = {"task": "cifar10", **MOMENTS}
ON_FEW = {"eval_rows": 128}
"""Of 65 tokens each: on these few, descent along 64 rotations is a third of the operations of training, in float64."""
BRIEF = {**MOMENTS, "epochs": 2, "eval_rows": 64, "snapshot_at": "1"}
IMAGES = {**BRIEF, "task": "digits", "task_options": {"image": True}}
TINY_GRAPH, TINY_NET = {**TINY, **BRIEF, "decay_on": "first"}, {**GRAPH_NET, "width": 8}
ROWS_A = (*EVERY_RULE, *KNOBS, *CHEAP_KNOBS, *NUDGED)
ROWS_B = (*EVERY_RULE, *KNOBS, *NUDGED_BRIEFLY)
ONE = SEEDS[:1]
SCALES = {
    "league": {
        "A": Block({**DEMO, **MOMENTS}, ROWS_A, TWENTY_SEEDS),
        "B": Block({**PAPER, **MOMENTS, "epochs": 30}, ROWS_B, FIVE_SEEDS),
        "C": Block({**ON_CIFAR, "net": "vit", "net_options": VIT, **ON_FEW, "epochs": 5}, ON_TOKENS, FIVE_SEEDS),
        "D": Block({**ON_CIFAR, "net": "lenet", "net_options": LENET, "epochs": 15}, ON_IMAGES, FIVE_SEEDS),
        "E2": Block({**GRAPH, "net_options": {**GRAPH_NET, "depth": 2}}, ON_GRAPHS, TEN_SEEDS, twins=False),
        "E6": Block({**GRAPH, "net_options": {**GRAPH_NET, "depth": 6}}, ON_GRAPHS, TEN_SEEDS),
    },
    "demo": {"A": Block({**DEMO, **MOMENTS}, FEW, SEEDS)},
    "test": {
        "A": Block({**DEMO, **BRIEF, "net_options": {**RESMLP, "depth": 2, "width": 16}}, ROWS_A, ONE),
        "B": Block({**PAPER, **BRIEF, "task": "digits", "net_options": {**RESMLP, "width": 16}}, ROWS_B, ONE),
        "C": Block({**IMAGES, "net": "vit", "net_options": {**VIT, "depth": 2, "width": 16}}, ON_TOKENS, ONE),
        "D": Block({**IMAGES, "net": "lenet", "net_options": {**LENET, "width": 4, "padded": True}}, ON_IMAGES, ONE),
        "E2": Block({**TINY_GRAPH, "net_options": {**TINY_NET, "depth": 2}}, ON_GRAPHS, ONE, twins=False),
        "E6": Block({**TINY_GRAPH, "net_options": {**TINY_NET, "depth": 4}}, ON_GRAPHS, ONE),
    },
}
"""Blocks: ResMLP on mnist1d (A) and CIFAR-10 (B), ViT-Mini (C), LeNet (D), GCNs of two and six layers on Cora (E2, E6).

All of it is a scale of its own name, because its records do not ship among those of the paper.
"""
NEW_SETTINGS = ("C", "D", "E2", "E6")
"""Blocks in whose settings no run was on record when the thresholds were set: of LeNet there was none at all, the ViT
and the GCN had been trained for another time, and the GCN from other weights under another decay. A and B are settings
of records that thresholds were set on."""


@register_study("league")
def league(scale: str = "demo", *, blocks: Sequence[str] = (), seeds: Sequence[int] = ()) -> Study:
    """Every row of every block, or of those named; "league" is all of it, "demo" four rules on mnist1d."""
    chosen = choose_scale(SCALES, scale)
    planned = [choose_scale(chosen, name) for name in blocks or chosen]
    return Study("league", drop_repeated(run for block in planned for run in block.plan(seeds)))
