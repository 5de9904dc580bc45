"""Small nets in float64 for rules that change how layers send credit down, and their gradients with and without."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.losses import row_errors
from creditscope.nets.resmlp import ResMLP
from creditscope.nets.vit import ViT
from creditscope.rng import generator
from creditscope.rules import AppliedRule, apply_rule, layers_with_feedback, rule_class
from creditscope.taps import resolve_taps

ROWS, CLASSES = 6, 3


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 6, (3, 2), stride=2, groups=2, padding=1, padding_mode="reflect"),
        nn.Tanh(),
        nn.Conv2d(6, 4, 3, padding="same", dilation=(1, 2)),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4 * 3 * 4, CLASSES),
    )


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str]]] = {
    "mlp": (lambda: ResMLP((7,), CLASSES, depth=2, width=8), (7,), ["stem", "blocks.*"]),
    "vit": (lambda: ViT((1, 4, 8), CLASSES, depth=2, width=12), (1, 4, 8), ["embed", "blocks.*"]),
    "conv": (conv_net, (2, 6, 6), ["1", "3", "5"]),
}
"""How each is made, the shape of an input, and its taps."""


def draw(name: str, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    """A net of that kind, away from zero and near-identity starts; inputs and labels that do not depend on the seed."""
    make, shape, _ = NETS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000)
        x, y = torch.randn(ROWS, *shape).double(), torch.randint(CLASSES, (ROWS,))
        torch.manual_seed(seed)
        net = make().double()
        for parameter in net.parameters():
            nn.init.normal_(parameter, std=0.4)
    return net, x, y


def apply(rule: str, net: nn.Module, x: Tensor, taps: list[str], seed: int = 0, **options: Any) -> AppliedRule:
    return apply_rule(rule_class(rule)(**options), net, resolve_taps(net, taps), x, generator(seed, "feedback")).applied


def built(rule: str, name: str, seed: int = 0, **options: Any) -> tuple[AppliedRule, nn.Module, Tensor, Tensor]:
    """The rule at work on a net, the plain net it was made of, inputs and labels."""
    net, x, y = draw(name, seed)
    plain = copy.deepcopy(net)
    return apply(rule, net, x, NETS[name][2], seed, **options), plain, x, y


def gradients(applied: AppliedRule, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """What one step of the rule puts in `.grad`."""
    for parameter in applied.net.parameters():
        parameter.grad = None
    applied.backward(x, lambda output: row_errors(output, y))
    return {name: p.grad.clone() for name, p in applied.net.named_parameters() if p.grad is not None}


def backprop(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The same by torch alone."""
    loss = nn.functional.cross_entropy(net(x), y)
    named = dict(net.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def set_memories(applied: AppliedRule, of: Callable[[Tensor], Tensor]) -> None:
    """Every layer's memory as a function of its weight."""
    for layer in layers_with_feedback(applied.net).values():
        layer.feedback.copy_(of(layer.weight.detach()))


def carried(layer: nn.Linear) -> Tensor:
    """The matrix that sends credit down a linear layer, read off its backward: row i is what δ = e_i sends."""
    x = layer.weight.new_zeros(layer.out_features, layer.in_features, requires_grad=True)
    return torch.autograd.grad(layer(x), x, torch.eye(layer.out_features, dtype=x.dtype))[0]


def cosine(a: Tensor, b: Tensor) -> float:
    a, b = (t.detach().double().flatten() for t in (a, b))
    return float(a @ b / (a.norm() * b.norm()))


def relative_error(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Largest over tensors, each against its own size; one whose gradient is 0 (the bias of keys) against all's."""
    assert found.keys() == wanted.keys()
    floor = 1e-3 * torch.stack([w.norm() for w in wanted.values()]).norm()
    return max(float((found[n] - w).norm() / w.norm().clamp(min=floor)) for n, w in wanted.items())
