"""BP and DFA over training, with and without a terminal LayerNorm: how large the stream and the gradient are."""

from collections.abc import Sequence

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import without_norm
from creditscope.paper.studies.audit_hero import SCALES

RULES = ("bp", "dfa")


@register_study("snapshot_resmlp")
def snapshot_resmlp(scale: str = "demo", *, seeds: Sequence[int] = ()) -> Study:
    """The recipe of `audit_hero` with both heads; the runs with a terminal norm are those of that study."""
    chosen = choose_scale(SCALES, scale)
    nets = (chosen["recipe"], without_norm(chosen["recipe"]))
    conditions = [{**recipe, "rule": rule} for recipe in nets for rule in RULES]
    return Study("snapshot_resmlp", over_seeds(conditions, seeds or chosen["seeds"]))
