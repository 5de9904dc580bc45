"""KAFT: the graph's own steps backwards, and feature-side feedback that is fitted to the net's Jacobian.

Hao, "KAFT: topology-factorized Jacobian-aligned feedback for deep GNNs" (2026), also called GRAFT.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import CreditContext, LearningContext, TapRule, register_rule
from creditscope.rules._graph import check_spreading, graph_of, propagated, pseudo_errors
from creditscope.rules._learning import advanced, draw_counter, gaussian_probe
from creditscope.rules.grape import unit_columns


@register_rule("kaft")
class KAFT(TapRule):
    """a_l = (Âᵀ)^k Ē R_l with k = min(L−1−l, K) and R_l (C, d) fitted to the Jacobian J of the logits by H_{l+1}.

    With Gaussian tangents P (nodes, d), `probes` of them a step, R is fitted to J P ≈ Âᵏ P Rᵀ in least squares, by one
    step a training step down the gradient G = (Âᵏ P)ᵀ(J P − Âᵏ P Rᵀ), of the length that is best for these probes,
    ‖G‖²/‖Âᵏ P G‖², times `rate` (1/t in step t, until that is less). So R runs after the Jacobian as an average over
    some 1/rate steps; it has no scale to be chosen, cannot overshoot, and stands still where the fit is exact: in a
    linear GCN Rᵀ ends as the product of the weights above.
    """

    label = "KAFT"
    formula = "a_l = (Âᵀ)^k Ē R_l,  k = min(L−1−l, K),  R_l fitted to J P ≈ Âᵏ P R_lᵀ"
    needs_feedback = True
    needs_graph = True
    learns_feedback = True

    def __init__(
        self,
        *,
        K: int = 10,
        probes: int = 2,
        rate: float = 0.2,
        spread: bool = False,
        alpha: float = 0.1,
        steps: int = 50,
    ):
        if K < 0 or probes < 1 or not 0 < rate <= 1:
            raise CreditscopeError(
                "Expected K >= 0, probes >= 1 and a rate above 0 and up to 1, "
                f"but got K {K}, probes {probes}, rate {rate}."
            )
        check_spreading(alpha, steps)
        self.K, self.probes, self.rate, self.spread = K, probes, rate, spread
        self.alpha, self.steps = alpha, steps

    def draw_feedback(
        self, tap_shapes: Sequence[tuple[int, ...]], classes: int, generator: torch.Generator
    ) -> list[Tensor]:
        """R_l of shape (C, d), which only the first step replaces, and the counter of the probes."""
        drawn = [unit_columns(torch.randn(classes, shape[-1], generator=generator)) for shape in tap_shapes]
        return [*drawn, draw_counter(generator)]

    def learn_feedback(self, ctx: LearningContext) -> list[Tensor]:
        """Taps of one shape share their probes, so that Âᵏ P costs one product per tap."""
        *feedback, counter = ctx.feedback
        matrix, dtype, taps = graph_of(ctx.inputs), feedback[0].dtype, len(feedback)
        rate = (1 / (counter[1] + 1).to(dtype)).clamp(min=self.rate)
        begun = counter[1] > 0
        probes = {
            shape: [gaussian_probe(counter, shape, dtype, place) for place in range(self.probes)]
            for shape in ctx.state_shapes
        }
        pushed = ctx.push_forward([torch.stack(probes[shape]) for shape in ctx.state_shapes])
        smoothed = {
            shape: list(propagated(matrix, torch.cat(drawn, dim=1), taps, self.K))[::-1]
            for shape, drawn in probes.items()
        }
        learned = []
        for i, (R, shape) in enumerate(zip(feedback, ctx.state_shapes, strict=True)):
            Q = smoothed[shape][i].unflatten(1, (self.probes, -1)).transpose(0, 1).flatten(0, 1)
            learned.append(fitted(Q, pushed[i].flatten(0, 1), R * begun, rate))
        return [*learned, advanced(counter)]

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        """From the top down: each tap is one convolution further from the error, up to K of them."""
        matrix, error = graph_of(ctx.inputs), ctx.error
        if self.spread:
            error = pseudo_errors(matrix, error, ctx.output, ctx.mask, self.alpha, self.steps)
        errors = propagated(matrix.flipped, error, len(ctx.states), self.K)
        return [e @ R for e, R in zip(errors, reversed(ctx.feedback[:-1]), strict=True)][::-1]


def fitted(Q: Tensor, Y: Tensor, R: Tensor, rate: Tensor) -> Tensor:
    """R after `rate` of the best step of steepest descent on ‖Y − Q Rᵀ‖²."""
    down = (Y - Q @ R.T).T @ Q
    largest = down.abs().amax()
    down = torch.where(largest > 0, down / largest, 0)  # squares of a collapsed net would be 0
    along = (Q @ down.T).square().sum()
    return R + rate * torch.where(along > 0, down.square().sum() / along, 0) * largest * down
