"""The runs of `league` that have many rows, for the figure of which early number ranks rules as their end does."""

from dataclasses import replace

from creditscope.paper.studies import Study, register_study
from creditscope.paper.studies.league import SCALES, league

MANY = ("A", "B")
"""Blocks with rows enough to rank."""


@register_study("judges")
def judges(scale: str = "demo") -> Study:
    """The same runs: none is trained twice."""
    blocks = [name for name in MANY if name in SCALES.get(scale, MANY)]
    return replace(league(scale, blocks=blocks), name="judges")
