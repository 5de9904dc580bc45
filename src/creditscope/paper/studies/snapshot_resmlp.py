"""BP and DFA over training, with and without a terminal LayerNorm: how large the stream and the gradient are."""

from collections.abc import Sequence
from itertools import product

from creditscope.paper.studies import Study, choose_scale, register_study
from creditscope.paper.studies._recipes import without_norm
from creditscope.paper.studies.audit_hero import SCALES

RULES = ("bp", "dfa")


@register_study("snapshot_resmlp")
def snapshot_resmlp(scale: str = "demo", *, seeds: Sequence[int] = ()) -> Study:
    """The recipe of `audit_hero` with both heads; the runs with a terminal norm are those of that study."""
    chosen = choose_scale(SCALES, scale)
    nets = (chosen["recipe"], without_norm(chosen["recipe"]))
    grid = product(nets, RULES, seeds or chosen["seeds"])
    return Study("snapshot_resmlp", tuple({**recipe, "rule": rule, "seed": seed} for recipe, rule, seed in grid))
