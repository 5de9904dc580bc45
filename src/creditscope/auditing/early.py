"""Where a run is read early: the last snapshot before its stream explodes or its gradient collapses."""

from dataclasses import dataclass

from creditscope.auditing.checks.cs001_overwritten_stream import OverwrittenStream
from creditscope.auditing.moment import Moment
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, Thresholds
from creditscope.record import Record, Snapshot

EARLY_UNTIL = 5
"""The last epoch that counts as early."""


@dataclass(frozen=True)
class Early:
    """The snapshot at which a run is read, and the epoch at which an alarm first fired."""

    snapshot: Snapshot
    fired: int | None


def gives_alarm(record: Record, snapshot: Snapshot) -> bool:
    """Whether CS001 or the published floor on ‖g_L‖ gives alarm."""
    top = snapshot.taps.g_norm[-1]
    overwritten = OverwrittenStream().judge(Moment.of(record, snapshot), Thresholds()).is_issue
    return overwritten or (top is not None and top < PUBLISHED_FLOOR)


def find_early(record: Record) -> Early:
    """The last snapshot before an alarm, at latest epoch 5; the first snapshot if there is alarm from the start."""
    early = [s for s in record.snapshots if s.epoch <= EARLY_UNTIL]
    fired = next((s.epoch for s in early if gives_alarm(record, s)), None)
    calm = [s for s in early if fired is None or s.epoch < fired]
    return Early((calm or record.snapshots[:1])[-1], fired)
