"""Weight mirror: feedback learned from noise that is sent through each layer.

Akrout et al., "Deep learning without weight transport" (NeurIPS 2019); here a running mean in place of an unbounded
Hebbian sum, so that there is nothing to tune but its rate (Kunin et al., "Two routes to scalable credit assignment
without weight symmetry", ICML 2020, on what the sum needs).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import Layer, WeightRule, register_rule


@register_rule("wm")
class WM(WeightRule):
    """B ← (1 − ρ) B + ρ mean over `rows` of y ξᵀ, y = W ξ, ξ standard normal: E[y ξᵀ] = W.

    At constant weights cos(W, B) = 1/√(1 + ρ/(2 − ρ)·(in + 1)/rows), the same for every W. A kernel is mirrored as the
    matrix that acts on patches. Before training B is the mean over as many rows as it then remembers, (2 − ρ)/ρ·rows.
    """

    label = "WM"
    formula = "backward pass with B_l for W_lᵀ,  B_l ← (1−ρ) B_l + ρ E[(W_l ξ) ξᵀ]"
    needs_feedback = True
    learns_feedback = True
    passes = 2.0  # products of every layer with noise
    remembers = False  # a fresh one would mirror the weights of today

    def __init__(self, *, rate: float = 0.05, rows: int = 128):
        if not 0 < rate <= 1 or rows < 1:
            raise CreditscopeError(f"Expected 0 < rate <= 1 and rows >= 1, but got rate {rate}, rows {rows}.")
        self.rate, self.rows = rate, rows

    def draw_memory(self, layer: Layer, generator: torch.Generator) -> Tensor:
        rows = round((2 - self.rate) / self.rate * self.rows)
        weight, noise = layer.weight.cpu(), torch.randn(rows, layer.weight[0].numel(), generator=generator)
        return mirror(weight, noise, torch.zeros_like(weight), 1.0)

    def learn(self, weight: Tensor, memory: Tensor, noise: Callable[..., Tensor]) -> Tensor:
        return mirror(weight, noise((self.rows, weight[0].numel())), memory, self.rate)


def mirror(weight: Tensor, noise: Tensor, memory: Tensor, rate: float) -> Tensor:
    """(1 − rate) memory + rate · mean of (W ξ) ξᵀ over the rows of the noise, of the weight's shape."""
    W, B, noise = weight.flatten(1), memory.flatten(1), noise.to(weight.dtype)
    return torch.addmm(B, (noise @ W.T).T, noise, beta=1 - rate, alpha=rate / len(noise)).view_as(weight)
