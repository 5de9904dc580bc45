"""The runs of `bp_bottleneck`, for the figure of how large their states are."""

from dataclasses import replace

from creditscope.paper.studies import Study, register_study
from creditscope.paper.studies.bp_bottleneck import bp_bottleneck


@register_study("forward_magnitude")
def forward_magnitude(scale: str = "demo") -> Study:
    """The same runs: none is trained twice."""
    return replace(bp_bottleneck(scale), name="forward_magnitude")
