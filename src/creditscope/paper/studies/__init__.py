"""Studies: which runs a figure or a table needs, at which scale; one file each. No torch until a run is missing."""

from creditscope.paper.studies._study import (
    Study,
    choose_scale,
    collect,
    find_missing,
    find_wanted,
    over_seeds,
    resolve_study,
    scale_on_record,
    studies_at,
    study_on_record,
)
from creditscope.registry import STUDIES

register_study = STUDIES.register

__all__ = [
    "Study",
    "choose_scale",
    "collect",
    "find_missing",
    "find_wanted",
    "over_seeds",
    "register_study",
    "resolve_study",
    "scale_on_record",
    "studies_at",
    "study_on_record",
]
