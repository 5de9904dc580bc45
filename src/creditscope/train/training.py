"""Train a run from one epoch to the last, measuring as it goes; the same for one seed and for a stack of them."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from creditscope.measure.snapshot import LastStep
from creditscope.record.schema import Snapshot
from creditscope.train.run import Run
from creditscope.train.snapshots import snapshot_run


@dataclass(frozen=True)
class Measured:
    """The snapshots of all seeds; None for a seed that has diverged."""

    snapshots: list[Snapshot | None]


@dataclass(frozen=True)
class Trained:
    """So many epochs are done, the last with these mean training losses of the seeds."""

    epoch: int
    losses: list[float]


@dataclass(frozen=True)
class Diverged:
    """A seed, by its place, has diverged in an epoch."""

    seed: int
    epoch: int


def train_epochs(
    run: Run, *, start: int = 0, audit: bool = True, on_measuring: Callable[[float], None] = lambda seconds: None
) -> Iterator[Measured | Trained | Diverged]:
    """Train from epoch `start` to the end; a seed whose loss stops being finite ends there, and the others go on.

    `audit=False` trains without measuring; the weights come out the same to the last bit. `on_measuring` is called
    within a snapshot, before each seed that is measured on its own, with the seconds since it was begun.
    """
    spec, alive = run.spec, [True] * len(run.specs)

    def snap(epoch: int, train_loss: Tensor | None, last: LastStep | None) -> Iterator[Measured]:
        if audit and spec.snapshot_due(epoch):
            began = time.monotonic()
            taken = snapshot_run(
                run,
                epoch,
                train_loss=train_loss,
                last_step=last,
                before_seed=lambda: on_measuring(time.monotonic() - began),
            )
            yield Measured([snapshot if lives else None for snapshot, lives in zip(taken, alive, strict=True)])

    if start == 0:
        yield from snap(0, None, None)
    for epoch in range(start, spec.epochs):
        keep = audit and spec.snapshot_due(epoch + 1)
        train_loss, last = run.train_epoch(epoch, keep_last=keep)
        losses: list[float] = train_loss.tolist()
        for seed, loss in enumerate(losses):
            if alive[seed] and not math.isfinite(loss):
                alive[seed] = False
                yield Diverged(seed, epoch + 1)
        if not any(alive):
            return
        yield from snap(epoch + 1, train_loss, last)
        yield Trained(epoch + 1, losses)


def train_run(
    run: Run,
    *,
    audit: bool = True,
    on_epoch: Callable[[int, Sequence[float]], None] = lambda epoch, losses: None,
    on_snapshots: Callable[[Sequence[Snapshot | None]], None] = lambda snapshots: None,
) -> None:
    """Train to the end, without a record; told are epochs with their losses, and snapshots."""
    for stage in train_epochs(run, audit=audit):
        if isinstance(stage, Trained):
            on_epoch(stage.epoch, stage.losses)
        elif isinstance(stage, Measured):
            on_snapshots(stage.snapshots)
