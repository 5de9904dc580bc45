"""Nets and rules for the calibration: flat states, tokens, images and graphs, untrained or shortly trained."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
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
from creditscope.nets.vit import EncoderBlock, ViT
from creditscope.rng import generator
from creditscope.rules import apply_rule, rule_class
from creditscope.taps import resolve_taps
from creditscope.tasks import GraphTask, Task, load_task

Kind = Literal["flat", "token", "image", "graph"]
KINDS: tuple[Kind, ...] = ("flat", "token", "image", "graph")
ROWS, NODES, STEPS = 128, 240, 30
"""Rows that are measured, nodes of the graphs, and steps of a short training."""


class Net(nn.Module):
    """Rows of 64 numbers through a stem, blocks and a head."""

    def __init__(self, stem: nn.Module, blocks: Iterable[nn.Module], head: nn.Module):
        super().__init__()
        self.stem, self.blocks, self.head = stem, nn.ModuleList(blocks), head

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x.flatten(1))
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class ConvBlock(nn.Module):
    """A 3×3 convolution with a skip."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.relu(self.conv(h))


class Mean(nn.Module):
    """Over tokens or places: all of them are told the same."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1) if h.ndim == 3 else h.mean((2, 3))


def plain_mlp() -> Net:
    """ReLU layers without a skip or a norm."""
    return Net(nn.Identity(), [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3)], nn.Linear(64, 10))


def pooled_tokens() -> Net:
    """Rows of an image as tokens; the head reads their mean."""
    stem = nn.Sequential(nn.Unflatten(1, (8, 8)), nn.Linear(8, 24))
    blocks = [EncoderBlock(24, heads=2, ratio=2, dropout=0.0, layer=i) for i in range(2)]
    return Net(stem, blocks, nn.Sequential(Mean(), nn.Linear(24, 10)))


def conv_net(stride: int, *, pooled: bool) -> Net:
    """Convolutions on images of 8×8 or, by a `stride` of 2, of 4×4; the head reads the mean over places, or all."""
    stem = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, stride=stride, padding=1))
    blocks = [ConvBlock(16) for _ in range(2)]
    head = [Mean(), nn.Linear(16, 10)] if pooled else [nn.Flatten(), nn.Linear(16 * (8 // stride) ** 2, 10)]
    return Net(stem, blocks, nn.Sequential(*head))


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
    "MLP, d = 64": ("flat", ("blocks.*",), plain_mlp),
    "ViT, 17 tokens": ("token", ("embed", "blocks.*"), lambda: ViT((1, 8, 8), 10, depth=2, width=24, patch=2)),
    "pooled, 8 tokens": ("token", ("stem", "blocks.*"), pooled_tokens),
    "conv 8×8, pooled": ("image", ("stem", "blocks.*"), lambda: conv_net(1, pooled=True)),
    "conv 4×4, flat head": ("image", ("stem", "blocks.*"), lambda: conv_net(2, pooled=False)),
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


def cases() -> Iterator[Case]:
    """Every net under every rule that owns feedback and applies to it."""
    for net, (kind, _, _) in NETS.items():
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
