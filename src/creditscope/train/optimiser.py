"""Number format, optimiser and learning-rate schedule of a run."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from creditscope.record.spec import RunSpec
from creditscope.stack import Net


def number_format(precision: str) -> torch.dtype:
    """What weights and data are stored in; "tf32" stores float32 and rounds the factors of matrix products."""
    return torch.float64 if precision == "float64" else torch.float32


def make_optimiser(
    spec: RunSpec, net: Net, *, first: Collection[str] = (), captured: bool = False
) -> torch.optim.Optimizer:
    """AdamW (decoupled decay), Adam (decay as an L2 term inside) or plain SGD, at the spec's learning rate.

    `first` names the parameters of the first layer, which alone decay if the spec says so. All are elementwise, so
    stacked parameters need nothing of their own. On CUDA they are fused; on a CPU not, because there a fused one rounds
    an element by its place in memory, but each operation is called once for all parameters. `captured` ones read their
    learning rate from the device, as float32.
    """
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    device = next(iter(trained.values())).device if trained else torch.device("cpu")
    options: dict[str, Any] = {"lr": spec.lr, ("fused" if device.type == "cuda" else "foreach"): True}
    if captured:
        options["lr"] = torch.tensor(spec.lr, device=device)
        if spec.optimiser != "sgd":
            options["capturable"] = True
    return kinds[spec.optimiser](decay_groups(spec, trained, first), **options)


def decay_groups(spec: RunSpec, trained: Mapping[str, nn.Parameter], first: Collection[str]) -> list[dict[str, Any]]:
    """Parameters with their weight decay: one group, or those of the first layer and the others, which have none."""
    if spec.decay_on == "all":
        return [{"params": list(trained.values()), "weight_decay": spec.weight_decay}]
    decaying, others = ([p for n, p in trained.items() if (n in first) is wanted] for wanted in (True, False))
    groups = [(decaying, spec.weight_decay), (others, 0.0)]
    return [{"params": members, "weight_decay": decay} for members, decay in groups if members]


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
