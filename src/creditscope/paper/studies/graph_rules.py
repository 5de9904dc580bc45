"""The runs of `graph_depth`, for the figure of each rule against every variant of BP."""

from dataclasses import replace

from creditscope.paper.studies import Study, register_study
from creditscope.paper.studies.graph_depth import graph_depth


@register_study("graph_rules")
def graph_rules(scale: str = "demo") -> Study:
    """The same runs: none is trained twice."""
    return replace(graph_depth(scale), name="graph_rules")
