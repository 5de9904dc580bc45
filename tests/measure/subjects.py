"""Small nets to measure, and the subjects that measurements run."""

import copy

import torch
from torch import nn

from creditscope.measure.functional_net import Subject, subjects_of
from creditscope.measure.observation import observe
from creditscope.nets.resmlp import ResMLP
from creditscope.rng import generator
from creditscope.rules import apply_rule, rule_class
from creditscope.stack import Batch
from creditscope.taps import resolve_taps


def make_net(*, depth: int = 3, width: int = 16, steps: int = 40, terminal_norm: bool = True):
    """A ResMLP that has learnt something of 1,024 rows, and those rows."""
    torch.manual_seed(0)
    net = ResMLP((8,), 4, depth=depth, width=width, terminal_norm=terminal_norm)
    x = torch.randn(1024, 8)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] * x[:, 2] > 0).long()
    learn(net, x, y, steps)
    return net, x, y


def learn(net: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    """Backprop with Adam; no gradient is left."""
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    optimiser.zero_grad()


def rescaled(net: ResMLP, factor: float) -> ResMLP:
    """The same function with every state of the stream times `factor`: layer norms, without their eps, undo it."""
    big = copy.deepcopy(net)
    with torch.no_grad():
        for layer in (big.stem, *(block.w2 for block in big.blocks)):
            layer.weight *= factor
            layer.bias *= factor
    for layer in big.modules():
        if isinstance(layer, nn.LayerNorm):
            layer.eps = 0.0
    return big


def make_subject(net, x, y, rule="dfa", *, taps=("stem", "blocks.*"), seed=0, **options) -> Subject:
    """The net under a rule, with every other row for a probe to train on and the rest to test it."""
    chosen = rule_class(rule)(**options) if isinstance(rule, str) else rule
    application = apply_rule(chosen, net, resolve_taps(net, list(taps)), x[:8], generator(seed, "feedback"))
    halves = (Batch(x[::2], y[::2]), Batch(x[1::2], y[1::2]))
    rows = {"inputs": x, "target": y, "probe": lambda: halves, "test": lambda: [Batch(x, y)]}
    return subjects_of(net, application.applied, [seed], **rows)[0]


def seen_of(subject: Subject):
    """What a snapshot is made of."""
    return observe(subject.net, subject.applied, subject.inputs, subject.target, noise=False)
