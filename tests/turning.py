"""Rotations for tests, made as those of the nulls are."""

import torch
from torch import Tensor

from creditscope.measure.nulls import haar_frames


def haar_frame(d: int, n: int, generator: torch.Generator) -> Tensor:
    """d rows and n orthonormal columns."""
    return haar_frames(torch.randn(d, n, generator=generator).double())
