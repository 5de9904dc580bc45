"""What each weight is told: the rule's gradient against the exact one, and the update that was applied.

Weights differ in shape, so they are measured one by one; every gradient is read as few times as possible.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.measure.numerics import angles


@dataclass(frozen=True)
class Direction:
    """A vector as its largest entry times a scaled copy, so that no square overflows or vanishes."""

    scaled: Tensor
    largest: Tensor
    length: Tensor

    @classmethod
    def of(cls, vector: Tensor) -> "Direction":
        """Split a gradient of any shape."""
        flat = vector.detach().reshape(-1)
        low, high = torch.aminmax(flat)
        largest = torch.maximum(-low, high)
        scaled = flat / torch.where(largest == 0, 1.0, largest)
        return cls(scaled, largest, torch.linalg.vector_norm(scaled))

    @property
    def norm(self) -> Tensor:
        """‖x‖."""
        return self.length * self.largest

    def cosine(self, other: "Direction") -> Tensor:
        """Cosine with another; NaN where one has no direction."""
        inner = (self.scaled * other.scaled).sum()  # `dot` of a single seed rounds differently from that of many
        return inner / (self.length * other.length)


def gradient_sizes(directions: list[Direction], rows: Tensor | int) -> dict[str, Tensor]:
    """Per weight, of a gradient summed over rows: norm of its mean, and the two kinds of zero.

    All zero: every element is 0. Underflow: not all zero, but the plain float32 √Σx² is 0, which is so exactly
    when the square of the largest element is.
    """
    largest = torch.stack([d.largest for d in directions]) / rows
    return {
        "norm": torch.stack([d.norm for d in directions]) / rows,
        "all_zero": largest == 0,
        "underflow": (largest.float().square() == 0) & (largest != 0),
    }


def plain_norm(gradient: Tensor) -> Tensor:
    """√Σx² in float32 as it stands, which underflows when every entry is below 1e-23 or so."""
    return gradient.float().square().sum().sqrt()


def measure_update(update: Mapping[str, Tensor], exact: Mapping[str, Direction]) -> dict[str, Tensor]:
    """Cosine of the applied update with −∇ per weight, and its share of the first-order decrease −⟨Δθ, ∇⟩.

    The shares are NaN if the update does not decrease the loss to first order.
    """
    cos, decrease = [], []
    for name, gradient in exact.items():
        applied = Direction.of(update[name])
        cos.append(-applied.cosine(gradient))
        decrease.append((cos[-1] * applied.norm).double() * gradient.norm.double())
    shares = torch.stack(decrease)
    total = shares.nansum()
    return {"update_cos": torch.stack(cos), "decrease_share": shares / torch.where(total > 0, total, torch.nan)}


def rotation_z(a: Tensor, g: Tensor) -> Tensor:
    """Cosine of two weight gradients in sd of its null: one of them turned by a random rotation of its output side.

    For matrices (out, in), ⟨RA, G⟩ = ⟨R, G Aᵀ⟩ with R Haar-distributed has mean 0 and variance ‖G Aᵀ‖²_F / out, so the
    sd of the cosine is ‖G Aᵀ‖_F / (√out ‖A‖ ‖G‖). A bias is a matrix with one column.
    """
    shape = a.shape
    a, g = (_output_first(Direction.of(x).scaled.view(shape)) for x in (a, g))
    outputs, inputs = a.shape
    if inputs < outputs:  # the same by smaller products
        square = ((g.mT @ g) * (a.mT @ a)).sum().clamp(min=0)
        return (a * g).sum() / (square / outputs).sqrt()
    square = (g @ a.mT).square().sum()
    return (a * g).sum() / (square / outputs).sqrt()


def _output_first(x: Tensor) -> Tensor:
    """A weight as a matrix (outputs, others): biases are one column, what is added to states has its features last."""
    if x.ndim < 2:
        return x.reshape(-1, 1)
    return x.reshape(-1, x.shape[-1]).mT if x.ndim == 3 and x.shape[0] == 1 else x.flatten(1)


def weight_angle(weight: Tensor, feedback: Tensor) -> Tensor:
    """Angle in degrees of a weight and its feedback, as vectors; NaN where one has no direction."""
    w, b = Direction.of(weight), Direction.of(feedback)
    units = [(d.scaled / d.length).unsqueeze(0) for d in (w, b)]
    return angles(units[0], units[1], (units[0] * units[1]).sum(-1)).squeeze(0)
