"""Where a run is read early: the last snapshot before its stream explodes or its gradient collapses."""

from dataclasses import dataclass

from creditscope.auditing.checks import PUBLISHED, Moment, RunCheck, Thresholds
from creditscope.auditing.checks.cs001_overwritten_stream import OverwrittenStream
from creditscope.record import Record, Snapshot

EARLY_UNTIL = 5
"""The last epoch that counts as early."""
ALARMS = (OverwrittenStream(), PUBLISHED["floor"])


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
