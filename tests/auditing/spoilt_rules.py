"""Rules that know the exact gradient and spoil it, each in a way that some number does not see."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

import creditscope as cs
from creditscope.nets.resmlp import ResMLP
from creditscope.rules.block_fa import BlockFA

TINY = 1e-12
"""Of the gradient: nothing learns from it, but its direction is right."""


class OpenNet(ResMLP):
    """A net that rules can see: credit is always asked for right after a forward."""

    last: ClassVar[ResMLP]

    def forward(self, x: Tensor) -> Tensor:
        OpenNet.last = self
        return super().forward(x)


def gradients(ctx: cs.CreditContext) -> list[Tensor]:
    """g_l at every tap; taps have hooks, so blocks are called piece by piece."""
    net = OpenNet.last
    with torch.enable_grad():
        states = [ctx.states[0].detach().requires_grad_()]
        for block in net.blocks:
            states.append(states[-1] + block.w2(block.act(block.w1(block.norm(states[-1])))))
        output = net.head(net.norm(states[-1]))
    return list(torch.autograd.grad(output, states, ctx.error))


def lengths(x: Tensor) -> Tensor:
    return x.norm(dim=1, keepdim=True).clamp(min=1e-30)


def row_noise(h: Tensor, salt: int) -> Tensor:
    """Of unit length in every row, the same for the same state, and blind to labels."""
    noise = torch.sin(1e4 * h + salt)
    return noise / lengths(noise)


def uniform(h: Tensor) -> Tensor:
    """A number in (0, 1) for every row, the same for the same state."""
    return (torch.sin(1e4 * h.sum(1, keepdim=True)) * 1e3).frac().abs().clamp(1e-6, 1 - 1e-6)


class SpoiltRule(cs.TapRule):
    """The exact gradient, spoilt tap by tap."""

    def credit(self, ctx: cs.CreditContext) -> Sequence[Tensor]:
        return [self.spoil(tap, g, ctx) for tap, g in enumerate(gradients(ctx))]

    def spoil(self, tap: int, g: Tensor, ctx: cs.CreditContext) -> Tensor:
        raise NotImplementedError


def at_an_end(tap: int, ctx: cs.CreditContext) -> bool:
    """Whether it is the stem's tap or the last one."""
    return tap in (0, len(ctx.states) - 1)


class CommonMode(SpoiltRule):
    """The gradient, and many times as much of one direction that all rows share."""

    needs_feedback = True

    def __init__(self, *, times: float = 100.0):
        self.times = times

    def draw_feedback(self, tap_shapes, classes, generator):
        drawn = [torch.randn(shape, generator=generator) for shape in tap_shapes]
        return [u / u.norm() for u in drawn]

    def spoil(self, tap, g, ctx):
        return g + self.times * lengths(g).mean() * ctx.feedback[tap]


class OneTap(SpoiltRule):
    """The gradient at one tap; at the others label-blind noise, or nothing at all."""

    def __init__(self, *, noise: bool = True):
        self.noise = noise

    def spoil(self, tap, g, ctx):
        return g if tap == 2 else lengths(g).mean() * row_noise(ctx.states[tap], tap) * self.noise


class FewReversed(SpoiltRule):
    """The gradient, but 2 % of the rows have it reversed and 10⁴ times larger."""

    def spoil(self, tap, g, ctx):
        return torch.where(uniform(ctx.states[0]) < 0.02, -1e4 * g, g)


class LastBlock(SpoiltRule):
    """The right direction everywhere, but only the stem and the last block can learn from it."""

    def spoil(self, tap, g, ctx):
        return g if at_an_end(tap, ctx) else TINY * g


class Driven(SpoiltRule):
    """The gradient for the stem and the last block; the others are driven somewhere, whatever the labels."""

    needs_feedback = True
    approximates = "a place of its own"

    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(*shape, *shape, generator=generator) for shape in tap_shapes]

    def spoil(self, tap, g, ctx):
        B = ctx.feedback[tap]
        return g if at_an_end(tap, ctx) else 0.3 * B[0] - 10 * torch.sin(ctx.states[tap] @ B)


class Faint(SpoiltRule):
    """A share of the gradient, and noise that every row has of its own."""

    def __init__(self, *, share: float = 0.05):
        self.share = share

    def spoil(self, tap, g, ctx):
        return self.share * g + lengths(g) * row_noise(ctx.states[tap], tap)


class WildScale(SpoiltRule):
    """The right direction in every row, but lengths that are log-normal."""

    def spoil(self, tap, g, ctx):
        return g * torch.exp(3 * torch.special.ndtri(uniform(ctx.states[0])))


class LabelBlind(cs.TapRule):
    """Noise, with an aim of its own."""

    approximates = "a target of its own"

    def credit(self, ctx):
        return [torch.sin(1e4 * h) for h in ctx.states]


class BoldBlockFA(BlockFA):
    """Block FA that says it hands every tap the gradient."""

    def exact_taps(self, count):
        return tuple(range(count))
