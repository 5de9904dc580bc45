"""What the tests of single rules share: small nets in float64, a rule at work on them, gradients written out anew."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from creditscope.graph import Adjacency
from creditscope.losses import row_errors
from creditscope.nets.gcn import GCN
from creditscope.nets.vit import ViT
from creditscope.rng import generator
from creditscope.rules import AppliedRule, apply_rule, rule_class
from creditscope.taps import resolve_taps

ROWS, TOKENS, INPUTS, CLASSES, DEPTH = 7, 3, 4, 3, 3


class Stage(nn.Module):
    """h + φ(W h + b), or φ(W h + b)."""

    def __init__(self, width: int, *, linear: bool, skip: bool):
        super().__init__()
        self.w, self.linear, self.skip = nn.Linear(width, width, bias=not linear), linear, skip

    def forward(self, h: Tensor) -> Tensor:
        z = self.w(h) if self.linear else torch.tanh(self.w(h))
        return h + z if self.skip else z


class Stream(nn.Module):
    """A linear stem, stages, and a linear head that reads the mean of tokens, if there are tokens."""

    def __init__(self, *, width: int = 5, linear: bool = False, skip: bool = True):
        super().__init__()
        self.stem = nn.Linear(INPUTS, width, bias=not linear)
        self.blocks = nn.ModuleList(Stage(width, linear=linear, skip=skip) for _ in range(DEPTH))
        self.head = nn.Linear(width, CLASSES, bias=not linear)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1) if h.ndim == 3 else h)


def stream(*, std: float = 0.5, **options: Any) -> tuple[Stream, Tensor, Tensor]:
    """A stream with weights that matter, its inputs and labels."""
    torch.manual_seed(0)
    net = Stream(**options).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=std)
    return net, torch.randn(ROWS, INPUTS).double(), torch.randint(CLASSES, (ROWS,))


def images() -> tuple[nn.Module, Tensor, Tensor, tuple[str, ...]]:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.Tanh())
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), block, nn.Flatten(), nn.Linear(3 * 2 * 3, CLASSES)).double()
    return net, torch.randn(ROWS, 1, 4, 6).double(), torch.randint(CLASSES, (ROWS,)), ("0", "1")


def tokens() -> tuple[nn.Module, Tensor, Tensor, tuple[str, ...]]:
    torch.manual_seed(0)
    net = ViT((1, 4, 8), CLASSES, depth=2, width=8, heads=2).double()
    for name, parameter in net.named_parameters():
        if name.endswith(("w2.weight", "class_token", "positions")):  # tokens of size 1, blocks that matter
            nn.init.normal_(parameter, std=0.3 if parameter.ndim == 2 else 1.0)
    x, y = torch.randn(ROWS, 1, 4, 8).double(), torch.randint(CLASSES, (ROWS,))
    return net, x, y, resolve_taps(net, ["embed", "blocks.*"])


def vectors() -> tuple[nn.Module, Tensor, Tensor, tuple[str, ...]]:
    net, x, y = stream()
    return net, x, y, resolve_taps(net, ["stem", "blocks.*"])


SHAPES = {"vectors": vectors, "images": images, "tokens": tokens}
"""Nets whose states are (rows, features), (rows, channels, y, x) and (rows, tokens, features)."""


def graph(nodes: int = 9) -> tuple[GCN, tuple[Tensor, Adjacency], Tensor, Tensor, tuple[str, ...]]:
    """A GCN on a ring with a few chords, half of whose nodes have a loss."""
    rng = np.random.default_rng(3)
    edges = np.triu(rng.random((nodes, nodes)) < 0.2, 1)
    edges[np.arange(nodes - 1), np.arange(1, nodes)] = True
    adjacency = Adjacency.normalised(sp.csr_array((edges | edges.T).astype(float)), "row", torch.float64)
    torch.manual_seed(0)
    net = GCN((INPUTS,), CLASSES, depth=3, width=4).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.9)
    inputs = (torch.randn(nodes, INPUTS).double(), adjacency)
    return net, inputs, torch.randint(CLASSES, (nodes,)), torch.arange(nodes) % 2 == 0, resolve_taps(net, "layers.*")


def at_work(rule: str, net: nn.Module, x: Any, taps: Sequence[str] = (), **options: Any) -> AppliedRule:
    taps = taps or resolve_taps(net, ["stem", "blocks.*"])
    return apply_rule(rule_class(rule)(**options), net, tuple(taps), x, generator(0, "feedback")).applied


def learn(applied: AppliedRule, x: Any, y: Tensor, **others: Any) -> Any:
    """One step of learning: `.grad` is set, and what the step records comes back."""
    applied.net.zero_grad()  # pyright: ignore[reportAttributeAccessIssue]
    return applied.backward(x, lambda output: row_errors(output, y, **others))


def shifted(
    net: nn.Module, taps: Sequence[str], x: Any, y: Tensor, shifts: Sequence[Tensor], mask: Tensor | None = None
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """States handed on, gradients of the summed loss there, and the losses, of the net with a shift added at each tap.

    By plain autograd through hooks, whatever the net.
    """
    leaves, states, hooks = [s.detach().clone().requires_grad_() for s in shifts], [], []
    for tap, leaf in zip(taps, leaves, strict=True):

        def add(_: nn.Module, __: Any, h: Tensor, leaf: Tensor = leaf) -> Tensor:
            states.append((h + leaf).detach())
            return h + leaf

        hooks.append(net.get_submodule(tap).register_forward_hook(add))
    output = net(*x) if isinstance(x, tuple) else net(x)
    for hook in hooks:
        hook.remove()
    losses = nn.functional.cross_entropy(output, y, reduction="none")
    losses = losses if mask is None else losses[mask]
    return states, list(torch.autograd.grad(losses.sum(), leaves)), losses.detach()


def close(found: Any, wanted: Any, atol: float = 1e-13, rtol: float = 1e-11) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=rtol, atol=atol)
