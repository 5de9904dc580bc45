"""What use of depth is judged by: the runs of all settings again with frozen blocks, stem and head trained alike."""

import json
from collections.abc import Mapping
from typing import Any

from creditscope.paper.studies import DEFAULTS, Study, choose_scale, conventions, drop_repeated, register_study
from creditscope.paper.studies._recipes import FROZEN, TEN_SEEDS
from creditscope.record.spec import MEASURING_FIELDS, RULE_FIELDS
from creditscope.registry import STUDIES

JUDGED = ("audit_hero", "snapshot_resmlp", "snapshot_vit", "cross_architecture", "penalty_rescue", "normalisation")
JUDGED += ("reproduction", "bp_bottleneck", "bottleneck_controls", "graph_depth")
WHOLE_BACKWARD = ("bp", "fa")
"""Rules under which a penalty on frozen blocks still reaches the stem; under the others one frozen run serves every λ.
"""


@register_study("baselines")
def baselines(scale: str = "paper") -> Study:
    """The frozen twin of every run of the studies whose depth can be judged: blocks to freeze, and BP to compare with.

    The embedded tasks have theirs in study `demo`.
    """
    choose_scale(conventions.SCALES, scale)
    runs = [run for name in JUDGED for run in STUDIES.get(name)(scale).runs if _has_depth(run)]
    by_bp = {_setting(run) for run in runs if run["rule"] == "bp"}
    return Study("baselines", drop_repeated(_twin(run) for run in runs if _setting(run) in by_bp and _is_asked(run)))


def _has_depth(run: Mapping[str, Any]) -> bool:
    """Whether all its blocks are trained on true labels, and there are any; a GCN's first and last layer are none."""
    ends = 2 if run["net"] == "gcn" else 0
    whole = run.get("train_last", -1) == -1 and run.get("targets", "true") == "true"
    return whole and run["net_options"]["depth"] > ends


def _is_asked(run: Mapping[str, Any]) -> bool:
    """All seeds of rules that may pass, so that verdicts can be drawn from any of them; ten of the others."""
    return run["rule"] in WHOLE_BACKWARD or run.get("seed") in TEN_SEEDS


def _setting(run: Mapping[str, Any]) -> str:
    """All but the rule and how it is measured, the seed included."""
    left_out = ("frozen", *RULE_FIELDS, *MEASURING_FIELDS)
    return json.dumps({n: v for n, v in {**DEFAULTS, **run}.items() if n not in left_out}, sort_keys=True)


def _twin(run: Mapping[str, Any]) -> dict[str, Any]:
    penalty = run.get("penalty", 0.0) if run["rule"] in WHOLE_BACKWARD else 0.0
    return {**run, **FROZEN, "penalty": penalty}
