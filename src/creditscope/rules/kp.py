"""Kolen–Pollack: feedback that is given the same updates and the same decay as the weights, and so meets them.

Kolen & Pollack, "Backpropagation without weight transport" (ICNN 1994); Akrout et al., "Deep learning without weight
transport" (NeurIPS 2019).
"""

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import Layer, WeightRule, register_rule


@register_rule("kp")
class KP(WeightRule):
    """ΔB = ΔW under the run's optimiser, with weight `decay` of both: W_t − B_t = Π(1 − η_s λ)(W_0 − B_0).

    That holds whatever the gradients are, under SGD and any elementwise optimiser with decoupled decay; where the decay
    goes through moments (Adam), only without it. B starts as another draw at W's own scale. Without decay (0) the
    difference stays, and only the common part grows.
    """

    label = "KP"
    formula = "backward pass with B_l for W_lᵀ,  ΔB_l = ΔW_l,  both with decay λ"
    needs_feedback = True
    follows = True

    def __init__(self, *, decay: float = 1.0):
        if decay < 0:
            raise CreditscopeError(f"Expected a decay >= 0, but got {decay}.")
        self.decay = decay

    def draw_memory(self, layer: Layer, generator: torch.Generator) -> Tensor:
        return torch.randn(layer.weight.shape, generator=generator) * float(layer.weight.square().mean().sqrt())
