"""What tests of rules with learned feedback share: small nets in float64, and steps that learn feedback alone."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import erf
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from creditscope.losses import RowErrors, RowLoss, errors_function
from creditscope.measure.observation import Observation, observe
from creditscope.rng import generator
from creditscope.rules import AppliedRule, Rule, apply_rule
from creditscope.taps import Forward, watch_forward


class Residual(nn.Module):
    """h + tanh(W h + b) over the last dimension."""

    def __init__(self, width: int):
        super().__init__()
        self.w = nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(self.w(h))


class MeanToken(nn.Module):
    """(rows, tokens, features) to their mean over tokens."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


def sequence(*modules: nn.Module, seed: int = 0) -> nn.Sequential:
    """The modules one after the other, in float64, all weights drawn anew: Gaussian of variance .8/inputs."""
    net = nn.Sequential(*modules).double()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            fan = max(1, p[0].numel())
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64) * (0.8 / fan) ** 0.5)
    return net


def rows(count: int, *shape: int, classes: int = 3, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Gaussian inputs and labels."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *shape, generator=draw, dtype=torch.float64)
    return x, torch.randint(classes, (count,), generator=draw)


def apply_to(rule: Rule, net: nn.Module, taps: Sequence[str], inputs: Any) -> AppliedRule:
    return apply_rule(rule, net, tuple(taps), inputs, generator(0, "feedback")).applied


def see(
    applied: AppliedRule, inputs: Any, target: Tensor, loss: RowLoss | None = None, mask: Tensor | None = None
) -> Observation:
    assert isinstance(applied.net, nn.Module)
    return observe(applied.net, applied, inputs, target, loss=loss, mask=mask, noise=False)


def step_of(
    applied: AppliedRule, inputs: Any, target: Tensor, loss: RowLoss | None = None, mask: Tensor | None = None
) -> tuple[Forward, RowErrors, Tensor]:
    """What a training step would learn feedback from, with the true gradient at the last tap."""
    forward = watch_forward(applied.net, applied.anatomy.taps, inputs)
    errors = errors_function(applied.net, target, loss, mask)(forward.output)
    (top,) = torch.autograd.grad(forward.output, forward.states[-1], errors.error)
    return forward, errors, top


def learn(applied: AppliedRule, inputs: Any, target: Tensor, **others: Any) -> None:
    """Move the feedback as one training step would; weights stay."""
    applied.learn(*step_of(applied, inputs, target, **others))


def slopes(applied: AppliedRule, inputs: Any, target: Tensor, **others: Any) -> Any:
    """The gradient that Adam is given in its first step, read off its first moment; nothing is moved."""
    shape = tree_flatten(applied.feedback)[1]
    learned = tree_unflatten(applied.learned(*step_of(applied, inputs, target, **others)), shape)
    assert float(learned["moments"]["steps"]) == 1
    return tree_map(lambda m: m / 0.1, learned["moments"]["first"])


def numerical_gradient(function: Callable[[list[np.ndarray]], float], weights: Sequence[Tensor]) -> list[np.ndarray]:
    """Central differences in every entry."""
    arrays = [w.detach().numpy().copy() for w in weights]
    found = [np.zeros_like(a) for a in arrays]
    for array, slope in zip(arrays, found, strict=True):
        for place in np.ndindex(array.shape):
            kept, values = array[place], []
            for sign in (1, -1):
                array[place] = kept + sign * 1e-5
                values.append(function(arrays))
            array[place] = kept
            slope[place] = (values[0] - values[1]) / 2e-5
    return found


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x / np.sqrt(2))) / 2


def gelu_slope(x: np.ndarray) -> np.ndarray:
    return (1 + erf(x / np.sqrt(2))) / 2 + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def small_net(weights: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Linear maps with GELU between them."""
    for i in range(0, len(weights), 2):
        x = (gelu(x) if i else x) @ weights[i].T + weights[i + 1]
    return x


def small_net_jacobian(weights: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Of every row, (rows, out, in)."""
    jacobian = np.broadcast_to(weights[0], (len(x), *weights[0].shape))
    for i in range(2, len(weights), 2):
        x = (gelu(x) if i > 2 else x) @ weights[i - 2].T + weights[i - 1]
        jacobian = np.einsum("oh,nh,nhi->noi", weights[i], gelu_slope(x), jacobian)
    return jacobian


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.norm() * b.norm()))
