"""What tests of stacked nets share: nets of a few seeds, outputs and gradients compared with those one by one."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from creditscope.nets.resmlp import ResMLP
from creditscope.nets.vit import ViT
from creditscope.stack import PerSeed, StackedNet, call_net

SEEDS = 3
NETS: dict[str, Callable[[], nn.Module]] = {
    "resmlp": lambda: ResMLP((6,), 3, depth=2, width=5),
    "no affine": lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.LayerNorm(5, elementwise_affine=False)),
    "norm without bias": lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5, bias=False), nn.Linear(5, 2)),
    "convolution": lambda: nn.Sequential(nn.Unflatten(-1, (1, 6)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(1)),
    "tokens": lambda: ViT((3, 8, 8), 4, depth=1, width=8, heads=2),
}
EITHER_INPUTS = pytest.mark.parametrize("per_seed", [True, False], ids=["own inputs", "shared inputs"])


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


def nets_of(make: Callable[[], nn.Module]) -> list[nn.Module]:
    return [make().double() for _ in range(SEEDS)]


def draw(per_seed: bool, *shape: int) -> Tensor:
    """Inputs that every seed has of its own, or that all share."""
    return leaf(*[SEEDS] * per_seed, *(shape or (9, 6))).detach()


def assert_stack_alike(nets: Sequence[nn.Module], inputs: Tensor | tuple, *, per_seed: bool = True) -> StackedNet:
    """The stack's outputs and parameter gradients are those of the nets."""
    stack = StackedNet.of(nets)
    output = stack(PerSeed(inputs) if per_seed else inputs)
    delta = torch.randn_like(output)
    found = torch.autograd.grad(output, list(stack.parameters()), delta, allow_unused=True)
    for seed, net in enumerate(nets):
        alone = call_net(net, inputs[seed] if per_seed else inputs)
        close(output[seed], alone)
        wanted = torch.autograd.grad(alone, list(net.parameters()), delta[seed], allow_unused=True)
        for g, w in zip(found, wanted, strict=True):
            assert (g is None) == (w is None)
            if g is not None and w is not None:
                close(g[seed], w)
    return stack
