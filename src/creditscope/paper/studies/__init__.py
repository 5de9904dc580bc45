"""Studies: which runs a figure or a table needs, at which scale; one file each. No torch until a run is missing."""

from creditscope.paper.studies._derived import DerivedRecord
from creditscope.paper.studies._scales import resolve_study, scale_on_record, studies_at, study_on_record
from creditscope.paper.studies._study import Study, choose_scale, collect, find_missing
from creditscope.registry import STUDIES

register_study = STUDIES.register

__all__ = [
    "DerivedRecord",
    "Study",
    "choose_scale",
    "collect",
    "find_missing",
    "register_study",
    "resolve_study",
    "scale_on_record",
    "studies_at",
    "study_on_record",
]
