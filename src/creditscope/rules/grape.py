"""GrAPE: direct feedback whose matrices are turned towards the net's Jacobian by forward-mode products.

Caillon et al., "Scaling direct feedback learning with Jacobian alignment guarantees" (ICLR 2026), without its
occasional steps of backprop.
"""

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import advanced, draw_counter, gaussian_probe
from creditscope.rules._spread import feature_count, spread_over_tokens


@register_rule("grape")
class GrAPE(TapRule):
    """a_l = R_lᵀ e, R_l (C, d) with columns of length 1, which turns towards (J p) pᵀ at `rate`.

    Each step has one Gaussian probe p, with numbers of its own for every row; (J p) pᵀ is summed over the rows (and
    tokens), so that on average it is the sum of the Jacobians of each row's logits by its own state. R moves up the
    gradient of the cosine of both, as vectors: R ← R + rate ‖R‖² ∂cos/∂R, and its columns are made unit vectors again.
    """

    label = "GrAPE"
    formula = "a_l = R_lᵀ e,  R_l ← R_l + η ‖R_l‖² ∂cos(R_l, (J p) pᵀ)/∂R_l,  p ~ N(0, I)"
    needs_feedback = True
    learns_feedback = True
    passes = 1.0  # with a tangent for each tap

    def __init__(self, *, rate: float = 0.1):
        if not 0 < rate <= 1:
            raise CreditscopeError(f"Expected a rate above 0 and up to 1, but got {rate}.")
        self.rate = rate

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> list[Tensor]:
        """R_l of shape (C, features), as in DFA, and the counter of the probes."""
        drawn = [unit_columns(torch.randn(classes, feature_count(s), generator=generator)) for s in tap_shapes]
        return [*drawn, draw_counter(generator)]

    def learn_feedback(self, ctx: CreditContext) -> list[Tensor]:
        *feedback, counter = ctx.feedback
        dtype = feedback[0].dtype
        drawn = {shape: gaussian_probe(counter, shape, dtype) for shape in set(ctx.state_shapes)}
        probes = [drawn[shape] for shape in ctx.state_shapes]
        pushed = ctx.push_forward([p.unsqueeze(0) for p in probes]).squeeze(1)
        learned = []
        for R, p, Jp in zip(feedback, probes, pushed, strict=True):
            p = p.sum(1) if p.ndim == 3 else p.flatten(1)
            learned.append(unit_columns(R + self.rate * turn_towards(Jp.T @ p, R)))
        return [*learned, advanced(counter)]

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        """One product per tap; all tokens of a sample are given the same."""
        pairs = zip(ctx.states, ctx.feedback[:-1], strict=True)
        return [spread_over_tokens(ctx.error @ R, h, ctx, "all") for h, R in pairs]


def turn_towards(target: Tensor, R: Tensor) -> Tensor:
    """‖R‖² ∂cos(R, target)/∂R: what is at right angles to R in the target's direction, in units of ‖R‖."""
    size, unit = R.norm(), R / R.norm()
    largest = target.abs().amax()
    goal = torch.where(largest > 0, target / largest, 0)
    length = goal.norm()
    goal = torch.where(length > 0, goal / length, 0)
    return size * (goal - (goal * unit).sum() * unit)


def unit_columns(R: Tensor) -> Tensor:
    """R with every column divided by its length."""
    return R / R.norm(dim=0, keepdim=True).clamp(min=torch.finfo(R.dtype).tiny)
