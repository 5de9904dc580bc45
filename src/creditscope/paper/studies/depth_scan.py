"""Block FA by the published conventions in wide nets of several depths."""

from collections.abc import Sequence
from itertools import product

from creditscope.paper.studies import Study, choose_scale, register_study
from creditscope.paper.studies.conventions import BLOCK_FA, SCALES, wide_net


@register_study("depth_scan")
def depth_scan(scale: str = "paper", *, seeds: Sequence[int] = ()) -> Study:
    """One rule at every depth, on few seeds."""
    chosen = choose_scale(SCALES, scale)
    grid = product(chosen["depths"], seeds or chosen["few"])
    return Study("depth_scan", tuple({**wide_net(chosen, depth), **BLOCK_FA, "seed": seed} for depth, seed in grid))
