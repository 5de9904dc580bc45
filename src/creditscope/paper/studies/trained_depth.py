"""Runs of `league` and `league_more` on one residual MLP, for the figure of what each trained block is worth."""

from creditscope.paper.studies import Study, choose_scale, drop_repeated, register_study
from creditscope.paper.studies.league import SCALES
from creditscope.paper.studies.league_more import SCALES as MORE

BLOCKS = ("A", "L8", "L12", "B")


@register_study("trained_depth")
def trained_depth(scale: str = "demo") -> Study:
    """The same runs: none is trained twice."""
    chosen = choose_scale(SCALES, scale) | MORE.get(scale, {})
    blocks = (chosen[name] for name in BLOCKS if name in chosen)
    return Study("trained_depth", drop_repeated(run for block in blocks for run in block.plan()))
