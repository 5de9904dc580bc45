"""FA and DFA on one residual MLP, from epoch to epoch: does what the taps are told follow the accuracy?"""

from collections.abc import Sequence

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import DEMO, PAPER, SEEDS, TEST, THIN, TWENTY_SEEDS

RULES = ("fa", "dfa")
SCALES = {
    "demo": {"recipe": DEMO, "seeds": SEEDS},
    "paper": {"recipe": {**PAPER, **THIN}, "seeds": TWENTY_SEEDS},
    "test": {"recipe": TEST, "seeds": SEEDS[:2]},
}


@register_study("fading")
def fading(scale: str = "demo", *, seeds: Sequence[int] = ()) -> Study:
    """Two rules by one recipe; "paper" is CIFAR-10 with 20 seeds, "demo" mnist1d with 3."""
    chosen = choose_scale(SCALES, scale)
    conditions = [{**chosen["recipe"], "rule": rule} for rule in RULES]
    return Study("fading", over_seeds(conditions, seeds or chosen["seeds"]))
