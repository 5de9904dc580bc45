"""Difference target propagation: targets go down through learned inverses of the stages.

Lee et al., "Difference target propagation" (ECML 2015); Meulemans et al., "A theoretical framework for target
propagation" (NeurIPS 2020): what it approximates is a Gauss–Newton step, not the gradient.
"""

from itertools import pairwise

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import advanced, draw_counter, gaussian_probes, gradient
from creditscope.rules._small_nets import adam, draw_mlp, draw_moments, mlp
from creditscope.rules._spread import chained_features, features_back, features_last


@register_rule("dtp")
class DTP(TapRule):
    """a_l = (h_l − t_l)/β with t_L = h_L − β g_L and t_l = h_l + G_l(t_{l+1}) − G_l(h_{l+1}).

    β is a row's own, `step`·‖h_L‖/‖g_L‖, so that targets are as far from states at any scale. G_l is an MLP of one
    hidden layer, plus the identity where sizes are equal and `skip`; Adam (`rate`) moves it down
    ‖G(F(h + ξ)) − (h + ξ)‖², ξ of `noise` times the root mean square of h. A perfect inverse of an invertible net gives
    a_l = (J_L … J_{l+1})⁻¹ g_L, for small steps.
    """

    label = "DTP"
    formula = "a_l = (h_l − t_l)/β,  t_l = h_l + G_l(t_{l+1}) − G_l(h_{l+1})"
    approximates = "Gauss–Newton target"
    needs_feedback = True
    needs_top_gradient = True
    learns_feedback = True
    passes = 1.0

    def __init__(self, *, step: float = 0.1, noise: float = 0.1, rate: float = 1e-3, skip: bool = True):
        if min(step, noise, rate) <= 0:
            raise CreditscopeError(f"Expected step, noise and rate > 0, but got {step}, {noise} and {rate}.")
        self.step, self.noise, self.rate, self.skip = step, noise, rate, skip

    def exact_taps(self, count: int) -> tuple[int, ...]:
        return (count - 1,)

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> dict:
        """The weights of every G_l, Adam's moments, and the counter of the noise."""
        pairs = pairwise(chained_features(tap_shapes, "DTP"))
        nets = [draw_mlp([above, above, d], generator, last=0.1) for d, above in pairs]
        return {"G": nets, "moments": draw_moments(nets), "counter": draw_counter(generator)}

    def learn_feedback(self, ctx: CreditContext) -> dict:
        counter, below = ctx.feedback["counter"], ctx.states[:-1]
        sizes = [self.noise * h.square().mean().sqrt() for h in below]
        moved = [h + s * xi for h, s, xi in zip(below, sizes, gaussian_probes(counter, below), strict=True)]
        above = ctx.forward.stages([*moved, ctx.states[-1]])[:-1]

        def loss(nets: list) -> Tensor:
            trios = zip(nets, moved, above, strict=True)
            return torch.stack([(self.inverse(G, y) - h).square().sum() for G, h, y in trios]).sum() / len(ctx.error)

        nets, moments = adam(ctx.feedback["G"], gradient(loss, ctx.feedback["G"]), ctx.feedback["moments"], self.rate)
        return {"G": nets, "moments": moments, "counter": advanced(counter)}

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        assert ctx.top_gradient is not None
        g, h = ctx.top_gradient, ctx.states[-1]
        sizes, slopes = (x.flatten(1).norm(dim=1) for x in (h, g))
        beta = torch.where((slopes > 0) & (sizes > 0), self.step * sizes / slopes, 1.0).view(-1, *[1] * (h.ndim - 1))
        credits, target = [g], h - beta * g
        for i in reversed(range(len(ctx.states) - 1)):
            G, below, above = ctx.feedback["G"][i], ctx.states[i], ctx.states[i + 1]
            change = self.inverse(G, target) - self.inverse(G, above)  # 0 to the last bit where the target is the state
            credits.append(-change / _over(beta, below))
            target = below + change
        return credits[::-1]

    def inverse(self, weights: list[Tensor], y: Tensor) -> Tensor:
        """G(y)."""
        x = features_last(y)
        inner = mlp(weights, x)
        return features_back(x + inner if self.skip and x.shape == inner.shape else inner, y)


def _over(beta: Tensor, h: Tensor) -> Tensor:
    return beta.view(-1, *[1] * (h.ndim - 1))
