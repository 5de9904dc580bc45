"""Local losses: every tap has a head of its own, and nothing crosses taps.

Nøkland & Eidnes, "Training neural networks with local error signals" (ICML 2019); Belilovsky, Eickenberg & Oyallon,
"Greedy layerwise learning can scale to ImageNet" (ICML 2019). The net predicts by its own last head.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from creditscope.errors import CreditscopeError, one_of
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import gradient
from creditscope.rules._small_nets import adam, draw_moments
from creditscope.rules._spread import one_hot, row_features

PROJECTED = 128
"""Features whose similarity is compared, at most."""


@register_rule("local")
class Local(TapRule):
    """a_l = ∂ℓ_l/∂h_l of the tap's own loss: pred ℓ(A_l h_l, y); sim ‖S(C_l h_l) − S(y*)‖²/rows, S the cosines between
    the rows of the batch, centred; predsim (1 − β) pred + β sim.

    Heads start at 0 and are learned by Adam (`rate`, by default that of a run's recipe). Images are pooled to at most
    `pooled` features, of tokens the class token is read, or their mean. Under sim, rows interact.
    """

    label = "local"
    formula = "a_l = ∂ℓ(A_l h_l, y)/∂h_l"
    approximates = "local loss"
    needs_feedback = True
    learns_feedback = True

    def __init__(self, *, loss: str = "pred", beta: float = 0.99, rate: float = 1e-3, pooled: int = 2048):
        if not 0 <= beta <= 1 or rate <= 0 or pooled < 1:
            raise CreditscopeError(
                f"Expected beta from 0 to 1, rate > 0 and pooled >= 1, but got {beta}, {rate} and {pooled}."
            )
        self.loss = one_of("local loss", loss, ("pred", "sim", "predsim"))
        self.beta, self.rate, self.pooled = beta, rate, pooled
        self.rows_interact = loss != "pred"
        self.weight = {"pred": 0.0, "sim": 1.0, "predsim": beta}[loss]

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> dict:
        """A_l and b_l, C_l as the loss asks, and Adam's moments."""
        heads: dict[str, list[Tensor]] = {}
        features = [self._features(shape) for shape in tap_shapes]
        if self.weight < 1:
            heads |= {"A": [torch.zeros(classes, d) for d in features], "b": [torch.zeros(classes) for _ in features]}
        if self.weight > 0:
            sizes = [(min(d, PROJECTED), d) for d in features]
            heads["C"] = [torch.randn(out, d, generator=generator) / math.sqrt(d) for out, d in sizes]
        return {"heads": heads, "moments": draw_moments(heads)}

    def learn_feedback(self, ctx: CreditContext) -> dict:
        heads, moments = ctx.feedback["heads"], ctx.feedback["moments"]
        slopes = gradient(lambda heads: self._losses(ctx, ctx.states, heads) / rows_of(ctx), heads)
        heads, moments = adam(heads, slopes, moments, self.rate)
        return {"heads": heads, "moments": moments}

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        return gradient(lambda states: self._losses(ctx, states, ctx.feedback["heads"]), list(ctx.states))

    def _losses(self, ctx: CreditContext, states: Sequence[Tensor], heads: dict[str, list[Tensor]]) -> Tensor:
        """The local losses of all taps, summed over rows; nothing ties one tap to another."""
        losses, rows = [], rows_of(ctx)
        for i, h in enumerate(states):
            x = self._read(h, ctx)
            if self.weight < 1:
                pred = ctx.loss(functional.linear(x, heads["A"][i], heads["b"][i])).sum()
                losses.append(pred if self.weight == 0 else (1 - self.weight) * pred)
            if self.weight > 0:
                off = similarities(x @ heads["C"][i].T, ctx.mask) - similarities(one_hot(ctx), ctx.mask)
                losses.append(self.weight * off.square().sum() / rows)
        return torch.stack(losses).sum()

    def _read(self, h: Tensor, ctx: CreditContext) -> Tensor:
        side = self._side(tuple(h.shape[1:]))
        return functional.adaptive_avg_pool2d(h, side).flatten(1) if side else row_features(h, ctx)

    def _side(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """Places an image is pooled to; None for other states."""
        if len(shape) != 3:
            return None
        _, height, width = shape
        shrink = min(1.0, math.sqrt(self.pooled / math.prod(shape)))
        return max(1, int(height * shrink)), max(1, int(width * shrink))

    def _features(self, shape: tuple[int, ...]) -> int:
        if side := self._side(shape):
            return shape[0] * math.prod(side)
        return shape[-1] if len(shape) == 2 else math.prod(shape)


def rows_of(ctx: CreditContext) -> Tensor | int:
    """How many rows have a loss."""
    return len(ctx.error) if ctx.mask is None else ctx.mask.sum().clamp(min=1)


def similarities(x: Tensor, mask: Tensor | None) -> Tensor:
    """Cosines between the rows of x, each less its own mean; 0, slope and all, for rows without a loss or a length."""
    x = x - x.mean(1, keepdim=True)
    length = x.norm(dim=1, keepdim=True)
    counts = length > 0 if mask is None else (length > 0) & mask.unsqueeze(-1)
    x = torch.where(counts, x / torch.where(counts, length, 1.0), 0.0)
    return x @ x.T
