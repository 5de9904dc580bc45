"""Small nets that a rule owns and learns: pure functions on lists of tensors, saved and stacked as feedback is."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map

from creditscope.rules._tree import leaves_of, unflatten
from creditscope.stack import transforms_active


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
    count = steps.double()  # in float32 the first moves would be off by 7e-6
    if not leaves_of(weights):
        return weights, {**moments, "steps": steps}
    ws, gs, ms, vs = map(leaves_of, (weights, gradients, moments["first"], moments["second"]))
    size, longer = ((factor / (1 - beta**count)).to(ws[0]) for factor, beta in ((rate, 0.9), (1.0, 0.999)))
    step = _adam_of_all if not transforms_active() else _adam_of_each
    moved, ms, vs = step(ws, gs, ms, vs, size, longer.sqrt(), 1 - rate * decay)
    moved, first, second = (unflatten(iter(found), weights) for found in (moved, ms, vs))
    return moved, {"first": first, "second": second, "steps": steps}


Lists = tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]


def _adam_of_each(ws: Any, gs: Any, ms: Any, vs: Any, size: Tensor, longer: Tensor, kept: float) -> Lists:
    """m ← m + .1(g − m), v ← .999 v + .001 g², w ← kept·w − size·m/(longer·√v + ε)."""
    ms = [m.lerp(g, 0.1) for m, g in zip(ms, gs, strict=True)]
    vs = [torch.addcmul(0.999 * v, g, g, value=0.001) for v, g in zip(vs, gs, strict=True)]
    moves = [m / (v.sqrt() * longer + 1e-8) * size for m, v in zip(ms, vs, strict=True)]
    return [(w if kept == 1 else kept * w) - move for w, move in zip(ws, moves, strict=True)], ms, vs


def _adam_of_all(ws: Any, gs: Any, ms: Any, vs: Any, size: Tensor, longer: Tensor, kept: float) -> Lists:
    """The same, each operation called once for all tensors, which maps over seeds do not know."""
    ms = torch._foreach_lerp(ms, gs, 0.1)
    vs = torch._foreach_mul(vs, 0.999)
    torch._foreach_addcmul_(vs, gs, gs, value=0.001)
    sizes = torch._foreach_sqrt(vs)
    torch._foreach_mul_(sizes, longer)
    torch._foreach_add_(sizes, 1e-8)
    moves = torch._foreach_div(ms, sizes)
    torch._foreach_mul_(moves, size)
    return torch._foreach_sub(ws if kept == 1 else torch._foreach_mul(ws, kept), moves), ms, vs
