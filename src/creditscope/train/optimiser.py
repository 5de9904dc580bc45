"""Number format, optimiser and learning-rate schedule of a run."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from creditscope.record.schema import RunSpec


def number_format(precision: str) -> torch.dtype:
    """What weights and data are stored in; "tf32" stores float32 and rounds the factors of matrix products."""
    return torch.float64 if precision == "float64" else torch.float32


def make_optimiser(
    spec: RunSpec, parameters: Iterable[nn.Parameter], *, captured: bool = False
) -> torch.optim.Optimizer:
    """AdamW (decoupled decay), Adam (decay as an L2 term inside) or plain SGD, at the spec's learning rate.

    All are elementwise, so stacked parameters need nothing of their own. On CUDA they are fused; on a CPU not, because
    there a fused one rounds an element by its place in memory, but each operation is called once for all parameters.
    `captured` ones read their learning rate from the device, as float32.
    """
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    parameters = list(parameters)
    device = parameters[0].device if parameters else torch.device("cpu")
    options: dict[str, Any] = {"fused": True} if device.type == "cuda" else {"foreach": True}
    if captured:
        options["lr"] = torch.tensor(spec.lr, device=device)
        if spec.optimiser != "sgd":
            options["capturable"] = True
    return kinds[spec.optimiser](parameters, **({"lr": spec.lr, "weight_decay": spec.weight_decay} | options))


def set_learning_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    """In place where it lives on the device: a captured step reads it there."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def learning_rate(spec: RunSpec, epoch: int) -> float:
    """lr · ½(1 + cos(π·epoch/epochs)) for epoch 0, 1, …, without warm-up and never 0; or constant.

    >>> learning_rate(RunSpec(task="t", net="n", rule="r", lr=2.0, epochs=2), 1)
    1.0
    """
    if spec.schedule == "constant":
        return spec.lr
    return spec.lr * 0.5 * (1 + math.cos(math.pi * epoch / spec.epochs))
