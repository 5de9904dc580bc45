"""Block FA by the published conventions in wide nets of several depths."""

from collections.abc import Sequence

from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies.conventions import BLOCK_FA, SCALES, wide_net


@register_study("depth_scan")
def depth_scan(scale: str = "paper", *, seeds: Sequence[int] = ()) -> Study:
    """One rule at every depth, on few seeds."""
    chosen = choose_scale(SCALES, scale)
    conditions = [{**wide_net(chosen, depth), **BLOCK_FA} for depth in chosen["depths"]]
    return Study("depth_scan", over_seeds(conditions, seeds or chosen["few"]))
