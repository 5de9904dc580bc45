"""Multiply a trained net's residual stream by c and measure it again; this part needs torch.

The stem and every block's W2 (weights and biases) are multiplied by c, so every state is c times as large. Blocks
look at the stream through a LayerNorm, and so does the head: the function does not change, but for LayerNorm's eps.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from safetensors.torch import load
from torch import nn

from creditscope.errors import CreditscopeError
from creditscope.measure.observation import observe
from creditscope.measure.snapshot import take_snapshots
from creditscope.nets.resmlp import ResMLP
from creditscope.record import Provenance, Record, Snapshot
from creditscope.record.finished import read_weights
from creditscope.stack import Net
from creditscope.train.device import begin_provenance, choose_device, now
from creditscope.train.run import Run, build_run
from creditscope.train.snapshots import evaluate, pack_bits


def stream_parameters(net: Net) -> list[nn.Parameter]:
    """What must be multiplied by c for every state to be; refuses a net whose function would change."""
    if not isinstance(net, ResMLP) or isinstance(net.norm, nn.Identity):
        without = " without a terminal LayerNorm" if isinstance(net, ResMLP) else ""
        raise CreditscopeError(
            f"Expected a ResMLP with a terminal LayerNorm, whose function does not depend on the size of its stream, "
            f"but got {type(net).__name__}{without}."
        )
    layers = [net.stem, *(block.w2 for block in net.blocks)]
    return [p for layer in layers for p in layer.parameters()]


@contextmanager
def rescaled(net: Net, c: float) -> Iterator[None]:
    """Inside, the stream of `net` is c times as large; afterwards its weights are what they were, to the bit."""
    parameters = stream_parameters(net)
    kept = [p.detach().clone() for p in parameters]
    try:
        with torch.no_grad():
            for p in parameters:
                p.mul_(c)
        yield
    finally:
        with torch.no_grad():
            for p, before in zip(parameters, kept, strict=True):
                p.copy_(before)


def load_run(record: Record, device: torch.device) -> Run:
    """The run with the weights and the feedback it ended with."""
    assert record.spec is not None
    run = build_run(record.spec, device=device)
    assert isinstance(run.net, nn.Module)
    content = read_weights(record)
    assert content is not None
    tensors = {name: tensor.to(device) for name, tensor in load(content).items()}
    for name, own in run.application.applied.tensors().items():
        own.copy_(tensors.pop(name))
    run.net.load_state_dict(tensors)
    return run


def measure_at(record: Record, factors: Sequence[float], *, device: str) -> tuple[Provenance, list[Snapshot]]:
    """A run's final weights at every c."""
    run = load_run(record, choose_device(device))
    provenance = begin_provenance(run.facts, device=run.device, engine=run.engine)
    found: list[Snapshot] = []
    for c in factors:
        with rescaled(run.net, c):
            found.append(measure_end(run))
    return replace(provenance, status="complete", finished=now()), found


def measure_end(run: Run) -> Snapshot:
    """What a last snapshot observes, in float64 too, and the answers to all test rows; none of the dear controls."""
    spec, batch = run.spec, run.data.snapshot_batch()
    run.net.eval()
    loss, correct = evaluate(run)
    seen = observe(run.net, run.application.applied, batch.inputs, batch.target, mask=batch.mask)
    scalars = {"loss": loss, "accuracy": correct.double().mean()}
    answers, steps = pack_bits(correct.cpu().numpy()), spec.epochs * run.data.steps
    (taken,) = take_snapshots(seen, run.facts, epoch=spec.epochs, step=steps, scalars=scalars)
    return replace(taken, correct=answers)
