"""State bridge: a net that predicts the last state from any tap's; credit is the gradient through it and the head.

As in the published audit of credit assignment, whose settings for images are not known.
"""

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import gradient
from creditscope.rules._small_nets import adam, draw_mlp, draw_moments, mlp
from creditscope.rules._spread import chained_features, features_back, features_last
from creditscope.rules.dni import beside


@register_rule("state_bridge")
class StateBridge(TapRule):
    """a_L = g_L, a_l = ∂/∂h_l ℓ(head(h_l + G(h_l, l/L, e))), G learned by Adam (`rate`) to predict h_L.

    By the squared error of the prediction over the square of h_L, both summed over the batch. G is one MLP for all taps
    with two hidden layers of `hidden` units, on the features of every place. With the true remainder of the net for G,
    a_l = g_l.
    """

    label = "state bridge"
    formula = "a_l = ∂ℓ(head(G(h_l, l/L, e)))/∂h_l,  G(h_l, l/L, e) → h_L"
    needs_feedback = True
    needs_top_gradient = True
    learns_feedback = True
    passes = 3.0  # of as many rows as there are taps below the last

    def __init__(self, *, hidden: int = 256, rate: float = 1e-3):
        if hidden < 1 or rate <= 0:
            raise CreditscopeError(f"Expected hidden >= 1 and rate > 0, but got hidden {hidden}, rate {rate}.")
        self.hidden, self.rate = hidden, rate

    def exact_taps(self, count: int) -> tuple[int, ...]:
        return (count - 1,)

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> dict:
        """G's weights, and Adam's moments."""
        d = one_size(tap_shapes, "the state bridge")
        net = draw_mlp([d + 1 + classes, self.hidden, self.hidden, d], generator, last=0.1)
        return {"G": net, "moments": draw_moments(net)}

    def learn_feedback(self, ctx: CreditContext) -> dict:
        goal = ctx.states[-1]

        def loss(net: list[Tensor]) -> Tensor:
            off = [(bridged(net, ctx, i, h) - goal).square().sum() for i, h in enumerate(ctx.states[:-1])]
            return torch.stack(off).mean() / goal.square().sum().clamp(min=1e-12)

        net, moments = adam(ctx.feedback["G"], gradient(loss, ctx.feedback["G"]), ctx.feedback["moments"], self.rate)
        return {"G": net, "moments": moments}

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        assert ctx.top_gradient is not None

        def loss(below: list[Tensor]) -> Tensor:
            last = [bridged(ctx.feedback["G"], ctx, i, h) for i, h in enumerate(below)]
            return torch.stack([ctx.loss(ctx.forward.head(h)) for h in last]).sum()

        return [*gradient(loss, list(ctx.states[:-1])), ctx.top_gradient]


def bridged(net: list[Tensor], ctx: CreditContext, tap: int, h: Tensor) -> Tensor:
    """h + G(h, l/L, e), at every place."""
    return h + features_back(mlp(net, placed(ctx, tap, h)), h)


def placed(ctx: CreditContext, tap: int, h: Tensor) -> Tensor:
    """What a bridge sees: features, how far up the net they are, and the row's error."""
    x = features_last(h)
    depth = torch.full((*x.shape[:-1], 1), tap / (len(ctx.states) - 1), dtype=x.dtype, device=x.device)
    return torch.cat([x, depth, beside(ctx.error, x)], dim=-1)


def one_size(tap_shapes: TapShapes, rule: str) -> int:
    """The number of features that all taps have; refuses others, and nets with one tap."""
    features = set(chained_features(tap_shapes, rule))
    if len(features) > 1 or len(tap_shapes) < 2:
        raise CreditscopeError(
            f"Expected at least two taps, all of one size, for {rule}, but got {', '.join(map(str, tap_shapes))}."
        )
    return features.pop()
