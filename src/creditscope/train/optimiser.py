"""Optimiser and learning-rate schedule of a run."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from creditscope.record.schema import RunSpec


def make_optimiser(spec: RunSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW (decoupled decay), Adam (decay as an L2 term inside) or plain SGD, at the spec's learning rate."""
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    return kinds[spec.optimiser](parameters, lr=spec.lr, weight_decay=spec.weight_decay)


def learning_rate(spec: RunSpec, epoch: int) -> float:
    """lr · ½(1 + cos(π·epoch/epochs)) for epoch 0, 1, …, without warm-up and never 0; or constant.

    >>> learning_rate(RunSpec(task="t", net="n", rule="r", lr=2.0, epochs=2), 1)
    1.0
    """
    if spec.schedule == "constant":
        return spec.lr
    return spec.lr * 0.5 * (1 + math.cos(math.pi * epoch / spec.epochs))
