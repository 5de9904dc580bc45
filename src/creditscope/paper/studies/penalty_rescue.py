"""Does a penalty on what blocks add rescue DFA, and what does it cost? With the nulls and controls that say so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from creditscope.auditing.checks import PUBLISHED, Moment, RunCheck, Thresholds
from creditscope.auditing.checks.cs001_overwritten_stream import OverwrittenStream
from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import DEMO, FROZEN, PAPER, SEEDS, TEN_SEEDS, TEST
from creditscope.record import Record, Snapshot

WEAK, STRONG = 1e-4, 1e-2
EARLY_UNTIL = 5
"""The last epoch that counts as early."""
ALARMS = (OverwrittenStream(), PUBLISHED["floor"])
EARLY = tuple(range(1, EARLY_UNTIL + 1))
"""Epochs at which DFA is measured in full, to be read before its stream has exploded."""
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"recipe": {**DEMO, "epochs": 30}, "seeds": SEEDS},
    "paper": {"recipe": {**PAPER, "epochs": 30}, "seeds": TEN_SEEDS},
    "test": {"recipe": {**TEST, "epochs": 3}, "seeds": SEEDS[:2]},
}


@register_study("penalty_rescue")
def penalty_rescue(scale: str = "demo", *, seeds: Sequence[int] = (), credit_norm: str = "none") -> Study:
    """DFA plain, once more for its first epochs, and under two penalties; BP without and with; frozen blocks."""
    chosen = choose_scale(SCALES, scale)
    recipe = chosen["recipe"]
    dfa = {**recipe, "rule": "dfa", "credit_norm": credit_norm}
    early = ",".join(str(epoch) for epoch in EARLY if epoch < recipe["epochs"])
    conditions = [
        dfa,
        {**dfa, "tier": "full", "snapshot_every": 0, "snapshot_at": early},
        {**dfa, "penalty": WEAK},
        {**dfa, "penalty": STRONG},
        {**recipe, "rule": "bp"},
        {**recipe, "rule": "bp", "penalty": STRONG},
        {**dfa, **FROZEN},
        {**recipe, **FROZEN, "rule": "bp"},
    ]
    return Study("penalty_rescue", over_seeds(conditions, seeds or chosen["seeds"]))


@dataclass(frozen=True)
class Early:
    """The snapshot at which a run is read, and the epoch at which an alarm first fired."""

    snapshot: Snapshot
    fired: int | None


def gives_alarm(record: Record, snapshot: Snapshot) -> bool:
    """Whether CS001 or the published floor on ‖g_L‖ gives alarm."""
    moment, limits = Moment.of(record, snapshot), Thresholds()
    return any(isinstance(check, RunCheck) and check.judge(moment, limits).is_issue for check in ALARMS)


def find_early(record: Record) -> Early:
    """The last snapshot before an alarm, at latest epoch 5; the first snapshot if there is alarm from the start."""
    early = [s for s in record.snapshots if s.epoch <= EARLY_UNTIL]
    fired = next((s.epoch for s in early if gives_alarm(record, s)), None)
    calm = [s for s in early if fired is None or s.epoch < fired]
    return Early((calm or record.snapshots[:1])[-1], fired)
