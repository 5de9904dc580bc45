"""Credit bridge: a scalar net along the stream whose gradient is the credit.

As in the published audit of credit assignment; without the phase of DFA that opens its training, because a rule does
not know how long training is.
"""

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from creditscope.errors import CreditscopeError
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import gradient
from creditscope.rules._small_nets import adam, draw_mlp, draw_moments, mlp
from creditscope.rules.state_bridge import one_size, placed


@register_rule("credit_bridge")
class CreditBridge(TapRule):
    """a_L = g_L, a_l = ∂V(h_l, l/L, e)/∂h_l, V a scalar net (two hidden layers of `hidden` units, summed over places).

    Adam (`rate`) moves V so that its gradient at the last tap is g_L, relative to the size of g_L in the batch, and,
    weighed by `consistency`, so that V does not change along the stream: V(h_l) = V̄(h_{l+1}), V̄ its running mean over
    steps (`mean_rate`). With the true loss to go for V, a_l = g_l.
    """

    label = "credit bridge"
    formula = "a_l = ∂V(h_l, l/L, e)/∂h_l,  ∂V(h_L, 1, e)/∂h_L → g_L,  V(h_l) → V(h_{l+1})"
    needs_feedback = True
    needs_top_gradient = True
    learns_feedback = True

    def __init__(self, *, hidden: int = 256, rate: float = 1e-3, consistency: float = 0.1, mean_rate: float = 0.005):
        if hidden < 1 or rate <= 0 or consistency < 0 or not 0 < mean_rate <= 1:
            raise CreditscopeError(
                "Expected hidden >= 1, rate > 0, consistency >= 0 and 0 < mean_rate <= 1, but got "
                f"{hidden}, {rate}, {consistency} and {mean_rate}."
            )
        self.hidden, self.rate, self.consistency, self.mean_rate = hidden, rate, consistency, mean_rate

    def exact_taps(self, count: int) -> tuple[int, ...]:
        return (count - 1,)

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> dict:
        """V's weights, their running mean, and Adam's moments."""
        d = one_size(tap_shapes, "the credit bridge")
        net = draw_mlp([d + 1 + classes, self.hidden, self.hidden, 1], generator)
        return {"V": net, "mean": [w.clone() for w in net], "moments": draw_moments(net)}

    def learn_feedback(self, ctx: CreditContext) -> dict:
        assert ctx.top_gradient is not None
        g, last = ctx.top_gradient, len(ctx.states) - 1
        above = [value(ctx.feedback["mean"], ctx, i, h) for i, h in enumerate(ctx.states)][1:]

        def loss(net: list[Tensor]) -> Tensor:
            slope = gradient(lambda h: value(net, ctx, last, h).sum(), ctx.states[-1], create_graph=True)
            ends = (slope - g).square().sum() / g.square().sum().clamp(min=1e-30)
            along = [value(net, ctx, i, h) - up for i, (h, up) in enumerate(zip(ctx.states, above, strict=False))]
            return ends + self.consistency * torch.stack(along).square().mean()

        net, moments = adam(ctx.feedback["V"], gradient(loss, ctx.feedback["V"]), ctx.feedback["moments"], self.rate)
        mean = tree_map(lambda m, w: (1 - self.mean_rate) * m + self.mean_rate * w, ctx.feedback["mean"], net)
        return {"V": net, "mean": mean, "moments": moments}

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        assert ctx.top_gradient is not None

        def values(below: list[Tensor]) -> Tensor:
            return torch.stack([value(ctx.feedback["V"], ctx, i, h) for i, h in enumerate(below)]).sum()

        return [*gradient(values, list(ctx.states[:-1])), ctx.top_gradient]


def value(net: list[Tensor], ctx: CreditContext, tap: int, h: Tensor) -> Tensor:
    """V of every row."""
    return mlp(net, placed(ctx, tap, h)).flatten(1).sum(1)
