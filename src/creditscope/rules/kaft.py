"""KAFT: the graph's own steps backwards, and feature-side feedback that is fitted to the net's Jacobian.

"GRAFT (KAFT): topology-factorized Jacobian-aligned feedback for deep GNNs" (submitted to NeurIPS 2026).
"""

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rng import gaussians_of_many
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import advanced, draw_counter
from creditscope.rules._spread import check_spreading, graph_of, propagated, pseudo_errors


@register_rule("kaft")
class KAFT(TapRule):
    """a_l = (Âᵀ)^k Ē R_l with k = min(L−1−l, K) and R_l (C, d) turned towards the Jacobian J of the logits by H_{l+1}.

    A step has `probes` Gaussian tangents P (nodes, d), each with numbers of its own for every node, and asks for
    J P ≈ Âᵏ P Rᵀ in least squares: R, times the number that fits best, takes one step of steepest descent, as long as
    fits these probes best, and R is then turned towards what it would become, R ← (1 − rate) R/‖R‖ + rate R′/‖R′‖. So R
    is the running average of the Jacobian's direction over some 1/rate steps; where the fit is exact it stands still,
    and in a linear GCN it ends parallel to the product of the weights above. Its size stays that of DFA's feedback,
    ‖R‖² = d: with the Jacobian's own, which shrinks with depth, deep nets collapse under weight decay as with backprop.
    """

    label = "KAFT"
    formula = "a_l = (Âᵀ)^k Ē R_l,  k = min(L−1−l, K),  R_l ∥ argmin ‖J P − Âᵏ P R_lᵀ‖"
    needs_feedback = True
    needs_graph = True
    learns_feedback = True
    passes = 1.0  # with as many tangents for each tap as there are probes

    def __init__(
        self,
        *,
        K: int = 10,
        probes: int = 1,
        rate: float = 0.05,
        spread: bool = False,
        alpha: float = 0.1,
        steps: int = 50,
    ):
        if K < 0 or probes < 1 or not 0 < rate <= 1:
            raise CreditscopeError(
                f"Expected K >= 0, probes >= 1 and 0 < rate <= 1, but got K {K}, probes {probes}, rate {rate}."
            )
        check_spreading(alpha, steps)
        self.K, self.probes, self.rate, self.spread = K, probes, rate, spread
        self.alpha, self.steps = alpha, steps

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> list[Tensor]:
        """R_l of shape (C, d), and the counter of the probes."""
        drawn = [resized(torch.randn(classes, shape[-1], generator=generator)) for shape in tap_shapes]
        return [*drawn, draw_counter(generator)]

    def learn_feedback(self, ctx: CreditContext) -> list[Tensor]:
        """Taps of one shape share their probes, so that Âᵏ P costs one product per tap."""
        *feedback, counter = ctx.feedback
        matrix, dtype, taps = graph_of(ctx.inputs), feedback[0].dtype, len(feedback)
        probes = {
            shape: gaussians_of_many([counter] * self.probes, range(self.probes), shape, dtype)
            for shape in set(ctx.state_shapes)
        }
        pushed = ctx.push_forward([torch.stack(probes[shape]) for shape in ctx.state_shapes])
        smoothed = {
            shape: list(propagated(matrix, torch.cat(drawn, dim=1), taps, self.K))[::-1]
            for shape, drawn in probes.items()
        }
        learned = []
        for i, (R, shape) in enumerate(zip(feedback, ctx.state_shapes, strict=True)):
            Q = smoothed[shape][i].unflatten(1, (self.probes, -1)).transpose(0, 1)
            Q = Q.clone(memory_format=torch.contiguous_format).flatten(0, 1)
            learned.append(aligned(R, Q, pushed[i].flatten(0, 1), self.rate))
        return [*learned, advanced(counter)]

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        """From the top down: each tap is one convolution further from the error, up to K of them."""
        matrix, error = graph_of(ctx.inputs), ctx.error
        if self.spread:
            error = pseudo_errors(matrix, error, ctx.output, ctx.mask, self.alpha, self.steps, balance=True)
        errors = propagated(matrix.flipped, error, len(ctx.states), self.K)
        return [e @ R for e, R in zip(errors, reversed(ctx.feedback[:-1]), strict=True)][::-1]


def aligned(R: Tensor, Q: Tensor, Y: Tensor, rate: float) -> Tensor:
    """R turned by `rate` towards a better fit Y ≈ Q Rᵀ; only the direction of Y counts, and Y = 0 changes nothing."""
    tiny = torch.finfo(R.dtype).tiny
    Y = Y / Y.abs().amax().clamp(min=tiny)
    fit = Q @ R.T
    fitted = (Y * fit).sum() / fit.square().sum() * R
    down = (Y - Q @ fitted.T).T @ Q
    best = down.square().sum() / (Q @ down.T).square().sum().clamp(min=tiny)
    better = fitted + best * down
    return resized((1 - rate) * R / R.norm() + rate * better / better.norm().clamp(min=tiny))


def resized(R: Tensor) -> Tensor:
    """R with ‖R‖² = d: columns of length 1, in the mean square."""
    return R * (R.shape[1] ** 0.5 / R.norm())
