"""Feedback alignment: the exact backward pass with Wᵀ replaced by a fixed random matrix in every Linear.

Lillicrap et al., "Random synaptic feedback weights support error backpropagation for deep learning",
Nature Communications 7 (2016). Activations' derivatives, norms and skips stay exact.
"""

import math

import torch
from torch import Tensor, nn

from creditscope.anatomy import Anatomy
from creditscope.errors import one_of
from creditscope.rules import WeightRule, convert_linears, register_rule


@register_rule("fa")
class FA(WeightRule):
    """δ_x = δ_y B in every Linear; `head` random or exact, feedback `scale` unit (1/√out) or match-init."""

    label = "FA"
    formula = "backward pass with B_l for W_lᵀ in every Linear"
    needs_feedback = True

    def __init__(self, *, head: str = "random", scale: str = "unit"):
        self.head = one_of("head feedback", head, ("random", "exact"))
        self.scale = one_of("feedback scale", scale, ("unit", "match-init"))

    def convert(self, net: nn.Module, anatomy: Anatomy, generator: torch.Generator) -> None:
        """Feedback for every Linear but, with `head="exact"`, those after the last tap."""

        def draw(name: str, layer: nn.Linear) -> Tensor | None:
            if self.head == "exact" and f"{name}.weight" in anatomy.stages[-1]:
                return None
            std = 1 / math.sqrt(layer.out_features)
            if self.scale == "match-init":
                std = float(layer.weight.detach().std())
            return torch.randn(layer.weight.shape, generator=generator) * std

        convert_linears(net, self, draw)
