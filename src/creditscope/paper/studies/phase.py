"""DFA by λ, normalisation of credit and terminal norm: which published setting was it, and where do its blocks gain?"""

from creditscope.paper.studies import Study, choose_scale, register_study
from creditscope.paper.studies.league_more import SCALES, league_more
from creditscope.paper.studies.normalisation import ADAMW, ALL_PENALTIES, normalisation

BLOCKS = ("phase", "phase, no norm")


@register_study("phase")
def phase(scale: str = "demo") -> Study:
    """Two blocks of `league_more`; "demo" is every λ on embedded data."""
    choose_scale({"demo": {}, **SCALES}, scale)  # refuses any other
    if scale != "demo":
        return Study("phase", league_more(scale, blocks=BLOCKS).runs)
    runs = normalisation(scale, penalties=ALL_PENALTIES).runs
    return Study("phase", tuple(run for run in runs if run["optimiser"] == ADAMW["optimiser"]))
