"""What each weight is told: the rule's gradient against the exact one, and the update that was applied."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from creditscope.measure.numerics import naive_norm_underflows, unit_rows


def gradient_sizes(gradients: Sequence[Tensor]) -> dict[str, Tensor]:
    """Per weight: safe norm, whether every element is 0, whether only the float32 norm is 0."""
    return {
        "norm": torch.stack([unit_rows(g.reshape(1, -1))[1][0] for g in gradients]),
        "all_zero": torch.stack([(g == 0).all() for g in gradients]),
        "underflow": torch.stack([naive_norm_underflows(g) for g in gradients]),
    }


def cosines(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Cosine of each pair; NaN where one has no direction."""
    values = []
    for a, b in zip(first, second, strict=True):
        (unit_a, norm_a), (unit_b, norm_b) = unit_rows(a.reshape(1, -1)), unit_rows(b.reshape(1, -1))
        values.append(torch.where((norm_a > 0) & (norm_b > 0), (unit_a * unit_b).sum(), torch.nan)[0])
    return torch.stack(values)


def measure_update(update: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Cosine of the applied update with −∇ per weight, and its share of the first-order decrease −⟨Δθ, ∇⟩."""
    missing = torch.full((), torch.nan, dtype=torch.float64)
    cos, decrease = [], []
    for name, gradient in exact.items():
        if name not in update:
            cos.append(missing.to(gradient.device))
            decrease.append(missing.to(gradient.device))
            continue
        cos.append(-cosines([update[name]], [gradient])[0].double())
        decrease.append(-(update[name].double() * gradient.double()).sum())
    shares = torch.stack(decrease)
    return {"update_cos": torch.stack(cos), "decrease_share": shares / shares.nansum()}
