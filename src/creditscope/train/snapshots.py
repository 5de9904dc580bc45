"""Snapshots of a run between two epochs: its rows and nets handed to what measures them; one seed or a stack."""

import base64
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from creditscope.losses import errors_function
from creditscope.measure.functional_net import Subject, subjects_of
from creditscope.measure.instruments import complete_snapshots
from creditscope.measure.layers import layer_names, measure_layers
from creditscope.measure.observation import observe
from creditscope.measure.snapshot import LastStep, take_snapshots
from creditscope.record.schema import Snapshot
from creditscope.record.spec import RunSpec
from creditscope.stack import Batch, call_net
from creditscope.train.run import Run, build_run


def snapshot_run(
    run: Run,
    epoch: int,
    *,
    train_loss: Tensor | None = None,
    last_step: LastStep | None = None,
    before_seed: Callable[[], None] = lambda: None,
) -> list[Snapshot]:
    """Measure every seed on its snapshot rows in eval mode, accuracy on all test rows; changes nothing.

    `before_seed`: see `complete_snapshots`.
    """
    spec, batch, applied = run.spec, run.data.snapshot_batch(), run.application.applied
    run.net.eval()
    loss, correct = evaluate(run)
    scalars = {"loss": loss, "accuracy": correct.double().mean(-1)}
    if train_loss is not None:
        scalars["train_loss"] = train_loss.view(loss.shape)
    ends, last = epoch in (0, spec.epochs), epoch == spec.epochs
    baseline = spec.frozen and spec.tier == "quick"  # only its accuracy is read
    noise = spec.noise and not baseline and (spec.tier != "quick" or last)
    layers = None
    if not baseline and layer_names(run.net):  # first, so that its states and the observation's are not held at once
        layers = measure_layers(
            run.net,
            applied.anatomy.taps,
            batch.inputs,
            batch.target,
            mask=batch.mask,
            probe=run.data.probe_batches() if ends else None,
        )
    seen = observe(run.net, applied, batch.inputs, batch.target, mask=batch.mask, noise=noise)
    taken = take_snapshots(
        seen,
        run.facts,
        epoch=epoch,
        step=epoch * run.data.steps,
        last_step=last_step,
        scalars=scalars,
        layers=layers,
    )
    if not baseline:
        taken = complete_snapshots(
            taken,
            seen,
            run.facts,
            run.net,
            seeds=[member.seed for member in run.specs],
            subjects=lambda: _subjects(run, batch),
            tier=spec.tier,
            ends=ends,
            last=last,
            before_seed=before_seed,
        )
    taken = [replace(snapshot, untrained=epoch == 0) for snapshot in taken]
    if not last:
        return taken
    flags = correct.view(len(taken), -1).cpu().numpy()
    return [replace(snapshot, correct=pack_bits(row)) for snapshot, row in zip(taken, flags, strict=True)]


@torch.no_grad()
def evaluate(run: Run) -> tuple[Tensor, Tensor]:
    """Mean loss, and one correct/incorrect flag per row, over the whole test set; seeds first, in a stack."""
    losses, correct = [], []
    for batch in run.data.test_batches():
        logits = batch.only_scored(call_net(run.net, batch.inputs), dim=-2)
        target = batch.only_scored(batch.target)
        losses.append(errors_function(run.net, target)(logits).loss)
        correct.append(logits.argmax(-1) == target)
    return torch.cat(losses, dim=-1).mean(-1), torch.cat(correct, dim=-1)


def _subjects(run: Run, batch: Batch) -> list[Subject]:
    """Every seed's net, with the rows that measurements may run it on."""
    found = subjects_of(
        run.net,
        run.application.applied,
        [spec.seed for spec in run.specs],
        inputs=batch.inputs,
        target=batch.target,
        mask=batch.mask,
        probe=cache(run.data.probe_batches),
        test=cache(lambda: list(run.data.test_batches())),
    )

    def began(spec: RunSpec) -> dict[str, Tensor]:
        """A seed's tensors before training: drawn once more, so that no copy of them has to be kept."""
        net = build_run(spec, run.task, run.device, run.data).net
        return {name: tensor.detach() for name, tensor in (*net.named_parameters(), *net.named_buffers())}

    each = zip(found, run.specs, strict=True)
    return [replace(subject, initial=cache(partial(began, member))) for subject, member in each]


def pack_bits(flags: np.ndarray) -> str:
    """One bit per flag, as base64."""
    return base64.b64encode(np.packbits(flags).tobytes()).decode()
