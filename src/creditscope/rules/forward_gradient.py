"""Forward gradients at activities: the slope of the loss along a random direction, times that direction.

Baydin et al., "Gradients without backpropagation" (2022); Ren et al., "Scaling forward gradient with local losses"
(ICLR 2023), who perturb activities; node perturbation is its finite difference.
"""

import torch
from torch import Tensor
from torch.func import jvp

from creditscope.errors import CreditscopeError
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import advanced, draw_counter, forward_mode, gaussian_probes


@register_rule("forward_gradient")
class ForwardGradient(TapRule):
    """a_l = mean over `probes` of (∂ℓ/∂h_l · p) p, p standard normal: unbiased for g_l, and nearly all noise.

    E cos = Γ(d/2)/(√π Γ((d+1)/2)) ≈ √(2/πd) for one probe of d features. `joint`: all taps are perturbed at once, which
    costs one tangent instead of one for each tap and adds the noise of the others. Where rows mix (a graph) the slope
    is that of the whole loss.
    """

    label = "forward gradient"
    formula = "a_l = (∂ℓ/∂h_l · p) p,  p ~ N(0, I)"
    learns_feedback = True
    draws_noise = True
    passes = 1.0  # with a tangent for each probe and tap, or for each probe

    def __init__(self, *, probes: int = 1, joint: bool = False):
        if probes < 1:
            raise CreditscopeError(f"Expected probes >= 1, but got {probes}.")
        self.probes, self.joint = probes, joint

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> list[Tensor]:
        """The counter of the probes alone."""
        return [draw_counter(generator)]

    def learn_feedback(self, ctx: CreditContext) -> list[Tensor]:
        return [advanced(ctx.feedback[0])]

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        counter, taps = ctx.feedback[0], len(ctx.states)
        probes = gaussian_probes(counter, [h.expand(self.probes, *h.shape) for h in ctx.states])
        if self.joint:
            pushed = self._push_all(ctx, probes).expand(taps, self.probes, *ctx.error.shape)
        else:
            pushed = ctx.push_forward(probes)
        slopes = (pushed * ctx.error).flatten(3).sum(-1)
        if ctx.net_mixes_rows:
            slopes = slopes.sum(-1, keepdim=True).expand_as(slopes)
        shape = slopes.shape[1:]
        return [(s.view(*shape, *[1] * (p.ndim - 2)) * p).mean(0) for s, p in zip(slopes, probes, strict=True)]

    def _push_all(self, ctx: CreditContext, probes: list[Tensor]) -> Tensor:
        """The derivative of the logits along the tangents of all taps at once, (probes, rows, classes)."""
        zeros = [torch.zeros_like(h) for h in ctx.states]

        def push(tangents: list[Tensor]) -> Tensor:
            return jvp(lambda shift: ctx.forward(shift=shift).output, (zeros,), (tangents,))[1]

        with forward_mode():
            return torch.vmap(push)(probes).clone(memory_format=torch.contiguous_format)
