"""Train runs as tests need them: into records, group by group, or in memory only."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from creditscope.measure.snapshot import LastStep
from creditscope.record import RunSpec, Snapshot
from creditscope.train.events import Ended, Epoch
from creditscope.train.groups import RunGroup
from creditscope.train.run import Run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.training import train_group


def record_runs(
    specs: Sequence[RunSpec],
    root: Path,
    *,
    engine: str = "loop",
    device: torch.device | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """How each run of a group ended, by the hash of its spec, or why it failed."""
    outcomes: dict[str, str] = {}
    group = RunGroup(tuple(specs), engine)
    for event in train_group(group, root, device=device or torch.device("cpu"), should_stop=should_stop):
        if isinstance(event, Ended):
            outcomes[event.run] = event.reason or event.status
        elif isinstance(event, Epoch):
            on_epoch(event)
    return outcomes


def train_run(
    run: Run,
    *,
    audit: bool = True,
    on_epoch: Callable[[int, list[float]], None] = lambda epoch, losses: None,
    on_snapshots: Callable[[list[Snapshot]], None] = lambda snapshots: None,
) -> None:
    """Train to the end without a record, measured or not; told are epochs with their losses, and snapshots."""

    def measure(epoch: int, train_loss: torch.Tensor | None = None, last: LastStep | None = None) -> None:
        if audit and run.spec.snapshot_due(epoch):
            on_snapshots(snapshot_run(run, epoch, train_loss=train_loss, last_step=last))

    measure(0)
    for epoch in range(run.spec.epochs):
        loss, last = run.train_epoch(epoch, keep_last=audit and run.spec.snapshot_due(epoch + 1))
        measure(epoch + 1, loss, last)
        on_epoch(epoch + 1, loss.tolist())
