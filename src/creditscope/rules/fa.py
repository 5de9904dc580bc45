"""Feedback alignment: the exact backward pass with Wᵀ replaced by a fixed random matrix in every Linear.

Lillicrap et al., "Random synaptic feedback weights support error backpropagation for deep learning",
Nature Communications 7 (2016). Activations' derivatives, norms and skips stay exact.
"""

import math

import torch
from torch import Tensor

from creditscope.errors import one_of
from creditscope.rules import Layer, WeightRule, register_rule

SCALES = ("unit", "match-init", "init")


@register_rule("fa")
class FA(WeightRule):
    """δ_x = δ_y B in every layer; `head` random or exact.

    Feedback `scale` is unit (1/√out), match-init (random at W's own scale), or init: B = W at initialisation, fixed
    (Cheon et al., "One-time soft alignment enables resilient learning without weight transport", 2025).
    """

    label = "FA"
    formula = "backward pass with B_l for W_lᵀ in every Linear"
    needs_feedback = True

    def __init__(self, *, head: str = "random", scale: str = "unit"):
        self.head = one_of("head feedback", head, ("random", "exact"))
        self.scale = one_of("feedback scale", scale, SCALES)
        self.remembers = scale != "init"  # which is no draw

    def draw_memory(self, layer: Layer, generator: torch.Generator) -> Tensor | None:
        """Fixed; none for layers after the last tap, with `head="exact"`."""
        if self.head == "exact" and layer.in_head:
            return None
        if self.scale == "init":
            return layer.weight.clone()
        own = float(layer.weight.std() if layer.weight.numel() > 1 else layer.weight.abs())  # one entry has no spread
        std = 1 / math.sqrt(layer.outputs) if self.scale == "unit" else own
        return torch.randn(layer.weight.shape, generator=generator) * std
