"""The conditions that published numbers belong to, as fields of specs of the studies at scale "paper"."""

from typing import Any

from creditscope.paper.reproduction._readers import Reader
from creditscope.paper.reproduction._readings import read
from creditscope.paper.reproduction._shelf import Wanted
from creditscope.paper.reproduction.compare import Alternative
from creditscope.paper.studies import reproduction
from creditscope.paper.studies._recipes import AT_THE_END, PAPER, VIT, without_norm
from creditscope.paper.studies.bp_bottleneck import PLAIN, RECIPE
from creditscope.paper.studies.cross_architecture import TEACHER
from creditscope.paper.studies.graph_depth import Method
from creditscope.paper.studies.penalty_rescue import EARLY, STRONG, WEAK

Condition = dict[str, Any]
END = {**PAPER, **AT_THE_END, "noise": False}
"""ResMLP d = 256, L = 4, 100 epochs, read at its end: any record of the run serves."""
BRIEF = {**END, "epochs": 30}
WIDTH = reproduction.SCALES["paper"]["width"]
BARE = without_norm(END)
BP, DFA, BLOCK_FA = ({**END, "rule": rule} for rule in ("bp", "dfa", "block_fa"))
BRIEF_BP, BRIEF_DFA = ({**BRIEF, "rule": rule} for rule in ("bp", "dfa"))
WHOLE = {"snapshot_every": 1}
"""Measured after every epoch."""
TESTED = {"tier": "standard", "noise": True}
"""With the controls that are measured at the end."""
EARLY_DFA = {**BRIEF_DFA, **TESTED, "tier": "full", "snapshot_at": ",".join(map(str, EARLY))}
STRONG_DFA, WEAK_DFA = ({**BRIEF_DFA, **TESTED, "penalty": penalty} for penalty in (STRONG, WEAK))
VIT_END = {**END, "net": "vit", "net_options": VIT}
STUDENT = {**TEACHER, **reproduction.EVERY_EPOCH, "noise": False}
FROZEN = {"frozen": True}


def other(label: str, wanted: Wanted, reader: Reader) -> tuple[Alternative, ...]:
    """One other condition."""
    return (Alternative(label, read(wanted, reader)),)


def wide(rule: str, depth: int = PAPER["net_options"]["depth"]) -> Condition:
    """Width 512, read at its end."""
    return {**END, "net_options": {**PAPER["net_options"], "width": WIDTH, "depth": depth}, "rule": rule}


def ladder(rule: str) -> list[Condition]:
    """Frozen blocks, then the last 1, 2, … trained, then all: 30 epochs."""
    depth = PAPER["net_options"]["depth"]
    rungs = [{"frozen": True}, *({"train_last": last} for last in range(1, depth)), {}]
    return [{**BRIEF, "rule": rule, **rung} for rung in rungs]


def gcn(depth: int, *, rule: str = "bp", gain: float = 1.0, residual: bool = False, decay: bool = True) -> Condition:
    """A deep GCN on Cora, as in study `graph_depth`."""
    method = Method(rule, gain, residual, decay)
    return {**method.fields(RECIPE, width=PLAIN["width"], depth=depth), "task": "cora"}
