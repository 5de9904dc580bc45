"""DFA by λ, normalisation of credit and terminal norm: which published setting was it, and where do its blocks gain?"""

from creditscope.paper.studies import Study, register_study
from creditscope.paper.studies._recipes import SEEDS
from creditscope.paper.studies.league_more import SCALES, league_more
from creditscope.paper.studies.normalisation import ADAMW, ALL_PENALTIES, NORMS, normalisation
from creditscope.paper.studies.penalty_rescue import WEAK, penalty_rescue

BLOCKS = ("phase", "phase, no norm")


@register_study("phase")
def phase(scale: str = "demo") -> Study:
    """Two blocks of `league_more`; of the paper what its other studies have; "demo" is every λ on embedded data."""
    if scale in SCALES:
        return Study("phase", league_more(scale, blocks=BLOCKS).runs)
    if scale == "paper":
        others = (run for norm in NORMS for run in penalty_rescue(scale, seeds=SEEDS, credit_norm=norm).runs)
        return Study("phase", (*normalisation(scale).runs, *(run for run in others if run.get("penalty") == WEAK)))
    runs = normalisation(scale, penalties=ALL_PENALTIES).runs
    return Study("phase", tuple(run for run in runs if run["optimiser"] == ADAMW["optimiser"]))
