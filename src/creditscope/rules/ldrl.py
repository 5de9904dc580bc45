"""Local difference reconstruction: credit goes down stage by stage through feedback that learns each stage's Jacobian.

Ernoult et al., "Towards scaling difference target propagation by learning backprop targets" (ICML 2022). The minimiser
of their loss, −2 ξᵀ J_G J_F ξ + ‖J_G ζ‖² in the limit of small noise, is J_G = J_Fᵀ. With linear G it can be learned by
a running mean and no optimiser: the weight mirror of a block.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.func import jvp

from creditscope.errors import CreditscopeError, one_of
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import advanced, draw_counter, forward_mode, gaussian_probes, gradient
from creditscope.rules._small_nets import adam, draw_mlp, draw_moments, mlp
from creditscope.rules._spread import chained_features, features_back, features_last, send_back


@register_rule("ldrl")
class LDRL(TapRule):
    """a_L = g_L; `feedback` linear: a_l = B_l a_{l+1}, B_l ← (1 − ρ) B_l + ρ mean of ξ (J ξ)ᵀ, so B_l → E[J_{l+1}]ᵀ.

    `feedback` learned: a_l = J_G(h_{l+1}) a_{l+1} with G a block (an MLP of one hidden layer, plus the identity where
    sizes are equal and `skip`), which Adam (`rate`) moves down the loss above. ρ is `mean_rate`. Both act on features,
    alike at every place; a stage's J ξ comes from one forward-mode pass for all stages.
    """

    label = "L-DRL"
    formula = "a_L = g_L,  a_l = B_l a_{l+1},  B_l → E[J_{l+1}]ᵀ"
    needs_feedback = True
    needs_top_gradient = True
    learns_feedback = True
    passes = 2.0

    def __init__(self, *, feedback: str = "linear", mean_rate: float = 0.05, rate: float = 1e-3, skip: bool = True):
        if not 0 < mean_rate <= 1 or rate <= 0:
            raise CreditscopeError(f"Expected 0 < mean_rate <= 1 and rate > 0, but got {mean_rate} and {rate}.")
        self.feedback = one_of("feedback of L-DRL", feedback, ("linear", "learned"))
        self.mean_rate, self.rate, self.skip = mean_rate, rate, skip

    def exact_taps(self, count: int) -> tuple[int, ...]:
        return (count - 1,)

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> dict:
        """B_l (d_l, d_{l+1}) as in block FA, or G_l's weights and Adam's moments; and the counter of the probes."""
        pairs = list(pairwise(chained_features(tap_shapes, "L-DRL")))
        if self.feedback == "linear":
            drawn = [torch.randn(d, above, generator=generator) / math.sqrt(above) for d, above in pairs]
            return {"B": drawn, "counter": draw_counter(generator)}
        nets = [draw_mlp([above, above, d], generator, last=0.1) for d, above in pairs]
        return {"G": nets, "moments": draw_moments(nets), "counter": draw_counter(generator)}

    def learn_feedback(self, ctx: CreditContext) -> dict:
        counter = ctx.feedback["counter"]
        noise = gaussian_probes(counter, ctx.states if self.feedback == "learned" else ctx.states[:-1])
        pushed = push_stages(ctx, noise[: len(ctx.states) - 1])
        following = {"counter": advanced(counter)}
        if self.feedback == "linear":
            pairs = [(rows_of(xi), rows_of(u)) for xi, u in zip(noise, pushed, strict=True)]
            seen = [xi.T @ u / len(xi) for xi, u in pairs]
            rate = self.mean_rate
            return {"B": [(1 - rate) * B + rate * s for B, s in zip(ctx.feedback["B"], seen, strict=True)], **following}

        def loss(nets: list) -> Tensor:
            total = ctx.error.new_zeros(())
            for weights, h, xi, u, zeta in zip(nets, ctx.states[1:], noise, pushed, noise[1:], strict=False):
                along = (self._down(weights, h, a) for a in (u, zeta))
                match, size = next(along), next(along)
                total = total + (size.square() - 2 * xi * match).sum() / len(xi)
            return total

        with forward_mode():
            slopes = gradient(loss, ctx.feedback["G"])
        nets, moments = adam(ctx.feedback["G"], slopes, ctx.feedback["moments"], self.rate)
        return {"G": nets, "moments": moments, **following}

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        """From the top down; a normalised chain is normalised at every link."""
        assert ctx.top_gradient is not None
        credits = [ctx.top_gradient]
        linear = self.feedback == "linear"
        for memory, above in zip(ctx.feedback["B" if linear else "G"][::-1], ctx.states[:0:-1], strict=True):
            a = ctx.normalise(credits[-1])
            credits.append(send_back(a, memory) if linear else self._down(memory, above, a))
        return credits[::-1]

    def _down(self, weights: list[Tensor], h: Tensor, a: Tensor) -> Tensor:
        """J_G(h) a."""

        def block(x: Tensor) -> Tensor:
            inner = mlp(weights, x)
            return x + inner if self.skip and x.shape == inner.shape else inner

        with forward_mode():
            return features_back(jvp(block, (features_last(h),), (features_last(a),))[1], h)


def push_stages(ctx: CreditContext, tangents: list[Tensor]) -> tuple[Tensor, ...]:
    """J_{l+1} ξ_l of every stage between two taps, in one forward-mode pass."""
    *below, last = ctx.states
    if not below:
        return ()
    with forward_mode():
        found = jvp(lambda *s: ctx.forward.stages([*s, last])[:-1], tuple(below), tuple(tangents))[1]
    return tuple(u.contiguous() for u in found)


def rows_of(x: Tensor) -> Tensor:
    """Every place of every row as a row of features."""
    return features_last(x).flatten(0, -2)
