"""Train a run from one epoch to the last, measuring as it goes; the same for one seed and for a stack of them."""

import math
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from creditscope.measure.snapshot import LastStep
from creditscope.record.schema import Snapshot
from creditscope.train.run import Run
from creditscope.train.snapshots import snapshot_run

OnEpoch = Callable[[int, Sequence[float]], None]
"""Called after every epoch with the epochs done and the mean training loss of every seed."""
OnSnapshots = Callable[[Sequence[Snapshot | None]], None]
"""Called with the snapshots of all seeds; None for a seed that has ended."""
OnMeasuring = Callable[[float], None]
"""Called within a snapshot, before each seed that is measured on its own, with the seconds since it was begun."""
OnEnd = Callable[[int, int | None], None]
"""Called once for every seed, by its place: the epoch in which it diverged, or None."""


def train_run(
    run: Run,
    *,
    start: int = 0,
    audit: bool = True,
    on_epoch: OnEpoch | None = None,
    on_snapshots: OnSnapshots | None = None,
    on_end: OnEnd | None = None,
    on_measuring: OnMeasuring = lambda seconds: None,
) -> None:
    """Train from epoch `start` to the end; a seed whose loss stops being finite ends there, and the others go on.

    `audit=False` trains without measuring; the weights come out the same to the last bit.
    """
    spec, alive = run.spec, [True] * len(run.specs)

    def snap(epoch: int, train_loss: Tensor | None, last: LastStep | None) -> None:
        if audit and spec.snapshot_due(epoch):
            began = time.monotonic()
            taken = snapshot_run(
                run,
                epoch,
                train_loss=train_loss,
                last_step=last,
                before_seed=lambda: on_measuring(time.monotonic() - began),
            )
            if on_snapshots:
                on_snapshots([snapshot if lives else None for snapshot, lives in zip(taken, alive, strict=True)])

    def end(seed: int, diverged: int | None) -> None:
        alive[seed] = False
        if on_end:
            on_end(seed, diverged)

    if start == 0:
        snap(0, None, None)
    for epoch in range(start, spec.epochs):
        keep = audit and spec.snapshot_due(epoch + 1)
        train_loss, last = run.train_epoch(epoch, keep_last=keep)
        losses: list[float] = train_loss.tolist()
        for seed, loss in enumerate(losses):
            if alive[seed] and not math.isfinite(loss):
                end(seed, epoch + 1)
        if not any(alive):
            return
        snap(epoch + 1, train_loss, last)
        if on_epoch:
            on_epoch(epoch + 1, losses)
    for seed, lives in enumerate(alive):
        if lives:
            end(seed, None)
