"""The published reading of credit: what a block is told at its output, compared with the gradient at its input."""

import torch
from torch import Tensor

from creditscope.measure.numerics import UnitRows, mean_where


def measure_reading(credits: list[UnitRows], gradients: list[UnitRows]) -> dict[str, Tensor]:
    """The field of a snapshot."""
    return {"cos_input": input_cosines(credits, gradients)}


def input_cosines(credits: list[UnitRows], gradients: list[UnitRows]) -> Tensor:
    """Mean over rows of cos(a_l, g_{l−1}) at tap l; NaN at tap 0 and where the two states differ in size."""
    found = [torch.full_like(credits[0].size[0], torch.nan)]
    for a, g in zip(credits[1:], gradients[:-1], strict=True):
        if a.unit.shape == g.unit.shape:
            found.append(mean_where((a.unit * g.unit).sum(-1), a.keep & g.keep))
        else:
            found.append(torch.full_like(found[0], torch.nan))
    return torch.stack(found)
