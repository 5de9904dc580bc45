"""Small nets that a rule owns and learns: pure functions on lists of tensors, saved and stacked as feedback is."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten


def draw_mlp(sizes: Sequence[int], generator: torch.Generator, *, last: float = 1.0) -> list[Tensor]:
    """W_1, b_1, W_2, b_2, …, W of variance 1/inputs and b = 0; the last W times `last` (0: the net starts at 0)."""
    weights = []
    for i, (d, out) in enumerate(pairwise(sizes)):
        scale = (last if i == len(sizes) - 2 else 1.0) / math.sqrt(d)
        weights += [torch.randn(out, d, generator=generator) * scale, torch.zeros(out)]
    return weights


def mlp(weights: Sequence[Tensor], x: Tensor, act: Callable[[Tensor], Tensor] = functional.gelu) -> Tensor:
    """x through linear maps with `act` between them, over the last dimension of x."""
    for i in range(0, len(weights), 2):
        x = functional.linear(act(x) if i else x, weights[i], weights[i + 1])
    return x


def draw_moments(weights: Any) -> dict[str, Any]:
    """Adam's state of a tree of tensors: both moments, and the count of steps."""
    first, second = (tree_map(torch.zeros_like, weights) for _ in range(2))
    return {"first": first, "second": second, "steps": torch.zeros(())}


def adam(
    weights: Any, gradients: Any, moments: dict[str, Any], rate: float, decay: float = 0.0
) -> tuple[Any, dict[str, Any]]:
    """One step of Adam (β .9, .999, ε 1e-8; decoupled decay): the new weights and moments; nothing is written."""
    steps = moments["steps"] + 1
    first = tree_map(lambda m, g: 0.9 * m + 0.1 * g, moments["first"], gradients)
    second = tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, moments["second"], gradients)
    (ws, shape), ms, vs = tree_flatten(weights), tree_flatten(first)[0], tree_flatten(second)[0]
    count = steps.double()  # in float32 the first moves would be off by 7e-6
    long, longer = 1 - 0.9**count, 1 - 0.999**count
    moved = [
        w * (1 - rate * decay) - (rate * (m / long.to(m)) / ((v / longer.to(v)).sqrt() + 1e-8))
        for w, m, v in zip(ws, ms, vs, strict=True)
    ]
    return tree_unflatten(moved, shape), {"first": first, "second": second, "steps": steps}
