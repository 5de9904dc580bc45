"""Optimiser and learning-rate schedule of a run."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from creditscope.record.schema import RunSpec


def make_optimiser(spec: RunSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW (decoupled decay) or plain SGD, at the spec's learning rate."""
    if spec.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=spec.lr, weight_decay=spec.weight_decay)
    return torch.optim.AdamW(parameters, lr=spec.lr, weight_decay=spec.weight_decay)


def cosine_lr(spec: RunSpec, epoch: int) -> float:
    """lr · ½(1 + cos(π·epoch/epochs)) for epoch 0, 1, …; no warm-up, never 0.

    >>> cosine_lr(RunSpec(task="t", net="n", rule="r", lr=2.0, epochs=2), 1)
    1.0
    """
    return spec.lr * 0.5 * (1 + math.cos(math.pi * epoch / spec.epochs))
