"""Sign-symmetric feedback: the backward pass with the signs of W, and magnitudes of its own.

Liao, Leibo & Poggio, "How important is weight symmetry in backpropagation?" (AAAI 2016); Moskovitz, Litwin-Kumar &
Abbott, "Feedback alignment in deep convolutional networks" (2018); Xiao et al., "Biologically-plausible learning
algorithms can scale to large datasets" (ICLR 2019).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from creditscope.errors import one_of
from creditscope.rules import Layer, WeightRule, register_rule

VARIANTS = ("u", "fr", "br")
SCALES = ("mean", "unit", "init")


@register_rule("sign_fa")
class SignFA(WeightRule):
    """B = s sign(W) (`variant` u), |M| ∘ sign(W) with Gaussian M drawn once (fr) or anew for every batch (br).

    `scale` s: mean, that of |W| now, so that B has W's own size; unit, 1/√in; init, mean |W| at initialisation. M has
    the size whose mean is s. `head` exact leaves the layers after the last tap to backprop.
    """

    label = "sign FA"
    formula = "backward pass with s_l sign(W_l), or |M_l| ∘ sign(W_l), for W_lᵀ"
    needs_feedback = True

    def __init__(self, *, variant: str = "u", scale: str = "mean", head: str = "sign"):
        self.variant = one_of("variant of sign-symmetric feedback", variant, VARIANTS)
        self.scale = one_of("feedback scale", scale, SCALES)
        self.head = one_of("head feedback", head, ("sign", "exact"))
        self.learns_feedback = self.draws_noise = variant == "br"
        self.passes = float(variant == "br")  # a draw of every weight's size
        self.remembers = variant != "u"

    def draw_memory(self, layer: Layer, generator: torch.Generator) -> Tensor | None:
        """Magnitudes with a mean of 1, or of the size that stays."""
        if self.head == "exact" and layer.in_head:
            return None
        sizes = torch.ones(layer.weight.shape)
        if self.variant != "u":
            sizes = half_normal(torch.randn(layer.weight.shape, generator=generator))
        fixed = {"mean": 1.0, "unit": 1 / math.sqrt(layer.inputs), "init": float(layer.weight.abs().mean())}
        return sizes * fixed[self.scale]

    def transport(self, weight: Tensor, memory: Tensor) -> Tensor:
        now = weight.abs().mean() if self.scale == "mean" else 1.0
        return now * memory * weight.sign()

    def learn(self, weight: Tensor, memory: Tensor, noise: Callable[..., Tensor]) -> Tensor:
        """Other magnitudes of the same mean."""
        return half_normal(noise(tuple(memory.shape))) * memory.mean()


def half_normal(noise: Tensor) -> Tensor:
    """Magnitudes of standard normal numbers, in units of their own mean: drawn again and again, it cannot wander."""
    return noise.abs() / noise.abs().mean()
