"""BP, block FA and DFA on one residual MLP: what accuracy and mean cosine say, and what the layers say."""

from collections.abc import Sequence

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import DEMO, PAPER, SEEDS, TEST, TWENTY_SEEDS

RULES = ("bp", "block_fa", "dfa")
SCALES = {
    "demo": {"recipe": DEMO, "seeds": SEEDS},
    "paper": {"recipe": PAPER, "seeds": TWENTY_SEEDS},
    "test": {"recipe": TEST, "seeds": SEEDS[:2]},
}


@register_study("audit_hero")
def audit_hero(scale: str = "demo", *, seeds: Sequence[int] = ()) -> Study:
    """Three rules by one recipe; "paper" is CIFAR-10 with 20 seeds, "demo" mnist1d with 3."""
    chosen = choose_scale(SCALES, scale)
    conditions = [{**chosen["recipe"], "rule": rule} for rule in RULES]
    return Study("audit_hero", over_seeds(conditions, seeds or chosen["seeds"]))
