"""DFA under the residual penalty λ = 0.01, seed 42: results/dfa_residual_penalty, from study `penalty_rescue`.

The log it is held against, DFA without a penalty, is the longer run of `snapshot_evolution_v2`.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from creditscope.auditing.thresholds import TRAJECTORY_ROWS
from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import Share, Size, Whole, divided, find_run, is_finite, read_log
from creditscope.paper.studies.penalty_rescue import STRONG, penalty_rescue
from creditscope.record import Record, Snapshot

SEED = 42
PATH = f"results/dfa_residual_penalty/dfa_pen_lam{STRONG}_s{SEED}.json"


class PenaltyEntry(TypedDict):
    """One snapshot."""

    epoch: Whole
    h_L_norm: Annotated[Size, Field(description="median ‖h_L‖")]
    g_2_norm: Annotated[Size, Field(description="median ‖g_2‖, divided by N")]
    g_L_norm: Annotated[Size, Field(description="median ‖g_L‖, divided by N")]
    test_acc: Annotated[Share, Field(description="on the whole test set")]


class PenaltyRun(TypedDict):
    """One penalised run; `config` holds the fields of its spec, λ, N, and where the log was cut, if it was."""

    config: dict[str, Any]
    final_acc: Share
    log: Annotated[list[PenaltyEntry], Field(min_length=1)]


@cache
def shape() -> TypeAdapter[PenaltyRun]:
    """What the file holds."""
    return TypeAdapter(PenaltyRun)


@register_export("dfa_residual_penalty")
def dfa_residual_penalty(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """Every snapshot of the one run."""
    runs = penalty_rescue(scale).runs
    wanted = next(w for w in runs if (w["rule"], w.get("penalty"), w["seed"]) == ("dfa", STRONG, SEED))
    record = find_run(records, wanted)
    if record is None or record.spec is None:
        return Export({}, (f"{PATH} is not written: dfa with λ = {STRONG}, seed {SEED} is not on record.",))
    log = read_log(record, [_entry(snapshot) for snapshot in record.snapshots])
    if not log.entries:
        return Export({}, (f"{PATH} is not written: its run has no snapshot in which everything is finite.",))
    config = {**asdict(record.spec), "lambda": record.spec.penalty, "N": TRAJECTORY_ROWS}
    config |= {"cut": log.cut} if log.cut else {}
    content = {"config": config, "final_acc": log.entries[-1]["test_acc"], "log": log.entries}
    return Export({PATH: shape().dump_python(shape().validate_python(content))})


def _entry(snapshot: Snapshot) -> dict[str, Any] | None:
    gradient = divided(snapshot.taps.g_norm)
    found = {"epoch": snapshot.epoch, "h_L_norm": snapshot.taps.h_norm[-1], "g_2_norm": gradient[2]}
    found |= {"g_L_norm": gradient[-1], "test_acc": snapshot.accuracy}
    return found if is_finite(found.values()) else None
