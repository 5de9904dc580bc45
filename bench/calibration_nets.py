"""Nets and rules for the calibration: flat states, tokens, images and graphs, untrained or shortly trained."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from creditscope.graph import Adjacency
from creditscope.losses import errors_function
from creditscope.measure.fresh_feedback import fresh_credits
from creditscope.measure.functional_net import Subject, subjects_of
from creditscope.measure.observation import Observation, observe
from creditscope.nets.gcn import GCN
from creditscope.nets.resmlp import ResMLP
from creditscope.nets.vit import Attention, ViT
from creditscope.rng import generator
from creditscope.rules import apply_rule, rule_class
from creditscope.taps import resolve_taps
from creditscope.tasks import GraphTask, Task, load_task

Kind = Literal["flat", "token", "image", "graph"]
KINDS: tuple[Kind, ...] = ("flat", "token", "image", "graph")
ROWS, NODES, STEPS = 128, 240, 30
"""Rows that are measured, nodes of the graphs, and steps of a short training."""


class PlainMLP(nn.Module):
    """ReLU layers without a skip or a norm."""

    def __init__(self, depth: int = 3, width: int = 64):
        super().__init__()
        sizes = [64, *[width] * depth]
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(i, o), nn.ReLU()) for i, o in pairwise(sizes))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = x.flatten(1)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class TokenBlock(nn.Module):
    """Attention and an MLP, both with a skip."""

    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, 2)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attention(self.norm1(h))
        return h + self.mlp(self.norm2(h))


class PooledTokens(nn.Module):
    """Rows of an image as tokens; the head reads their mean, so that all tokens are told the same."""

    def __init__(self, depth: int = 2, width: int = 24):
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.ModuleList(TokenBlock(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x.flatten(1).unflatten(1, (8, 8)))
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))


class ConvBlock(nn.Module):
    """A 3×3 convolution with a skip."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.relu(self.conv(h))


class ConvNet(nn.Module):
    """Convolutions on images of 8×8 or, by a `stride` of 2, of 4×4; the head reads the mean over places, or all."""

    def __init__(self, depth: int = 2, channels: int = 16, *, stride: int = 1, pooled: bool = True):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, stride=stride, padding=1)
        self.blocks = nn.ModuleList(ConvBlock(channels) for _ in range(depth))
        self.pooled = pooled
        self.head = nn.Linear(channels if pooled else channels * (8 // stride) ** 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x.view(-1, 1, 8, 8))
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean((2, 3)) if self.pooled else h.flatten(1))


@dataclass(frozen=True)
class Case:
    """A net under a rule."""

    kind: Kind
    net: str
    rule: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.rule}{''.join(f', {k} {v}' for k, v in self.options.items())}"


@dataclass(frozen=True)
class Made:
    """A net with what was seen of it."""

    subject: Subject
    seen: Observation
    taps: tuple[int, ...]
    """Those without exact credit."""


NETS: dict[str, tuple[Kind, tuple[str, ...], Callable[[], nn.Module]]] = {
    "ResMLP, d = 32": ("flat", ("stem", "blocks.*"), lambda: ResMLP((64,), 10, depth=2, width=32)),
    "MLP, d = 64": ("flat", ("blocks.*",), PlainMLP),
    "ViT, 17 tokens": ("token", ("embed", "blocks.*"), lambda: ViT((1, 8, 8), 10, depth=2, width=24, patch=2)),
    "pooled, 8 tokens": ("token", ("stem", "blocks.*"), PooledTokens),
    "conv 8×8, pooled": ("image", ("stem", "blocks.*"), ConvNet),
    "conv 4×4, flat head": ("image", ("stem", "blocks.*"), lambda: ConvNet(stride=2, pooled=False)),
    "GCN, d = 32": ("graph", ("layers.*",), lambda: GCN((32,), 4, depth=4, width=32)),
    "residual GCN": ("graph", ("layers.*",), lambda: GCN((32,), 4, depth=4, width=32, residual=True)),
}
"""Kind of state, taps and maker of every net."""
RULES: dict[Kind, tuple[str, ...]] = {
    "flat": ("fa", "block_fa", "dfa", "grape"),
    "token": ("fa", "block_fa", "dfa", "grape"),
    "image": ("block_fa", "dfa", "grape"),  # feedback alignment refuses convolutions
    "graph": ("fa", "block_fa", "dfa", "dfa_gnn", "grape", "kaft"),
}


def cases(kinds: tuple[Kind, ...] = KINDS) -> Iterator[Case]:
    """Every net under every rule that owns feedback and applies to it."""
    for net, (kind, _, _) in NETS.items():
        if kind not in kinds:
            continue
        yield from (Case(kind, net, rule) for rule in RULES[kind])
        if net.startswith("ViT"):
            yield from (Case(kind, net, rule, {"tokens": "class"}) for rule in ("block_fa", "dfa"))


@cache
def _rows(kind: Kind) -> tuple[Any, Tensor, Tensor | None]:
    """Inputs, target and mask."""
    if kind == "graph":
        task = load_task("sbm", nodes=NODES)
        assert isinstance(task, GraphTask)
        graph = Adjacency.normalised(task.adjacency, task.normalisation, torch.float32)
        return (torch.from_numpy(task.x), graph), torch.from_numpy(task.y).long(), torch.from_numpy(task.train)
    task = load_task("digits", image=True)
    assert isinstance(task, Task)
    return torch.from_numpy(task.x_train[:ROWS]), torch.from_numpy(task.y_train[:ROWS]), None


def make(case: Case, seed: int, *, steps: int = 0) -> Made:
    """The net of a seed, trained for so many steps of Adam on the rows that are measured."""
    _, taps, maker = NETS[case.net]
    inputs, target, mask = _rows(case.kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = maker()
    rule = rule_class(case.rule)(**case.options)
    application = apply_rule(rule, net, resolve_taps(net, list(taps)), inputs, generator(seed, "feedback"))
    applied, optimiser = application.applied, torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        applied.backward(inputs, errors_function(net, target, mask=mask))
        optimiser.step()
    net.eval()
    (subject,) = subjects_of(net, applied, [seed], inputs=inputs, target=target, mask=mask)
    seen = observe(net, applied, inputs, target, mask=mask, noise=False)
    inexact = tuple(i for i in range(len(seen.states)) if i not in application.exact_taps)
    return Made(subject, seen, inexact)


def fresh(made: Made, draws: int, purpose: str) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Every tap without exact credit: its number, the credit of so many draws of all feedback, and the gradient."""
    streams = [generator(made.subject.seed, purpose, draw) for draw in range(draws)]
    credits = fresh_credits(made.subject, made.seen, streams)
    for tap in made.taps:
        yield tap, credits[tap], made.seen.exact[tap]
