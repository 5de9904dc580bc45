"""Is a gradient above rounding noise? Recompute it in float64 and look."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.losses import RowErrors
from creditscope.measure.numerics import median_where, row_norms, usable
from creditscope.stack import Net
from creditscope.taps import gradients_at, watch_forward

OVERFLOWED = 1e30
"""Noise of a row whose gradient is not finite."""


def float64_gradients(
    net: Net, taps: Sequence[str], inputs: Any, errors_of: Callable[[Tensor], RowErrors]
) -> list[Tensor]:
    """The exact gradient at every tap with weights, buffers and inputs in float64; raises if the net cannot."""
    tensors = {n: double(t.detach()) for n, t in (*net.named_parameters(), *net.named_buffers())}
    forward = watch_forward(net, taps, doubled_inputs(inputs), tensors)
    if forward.output.dtype != torch.float64:
        raise CreditscopeError(f"Expected a forward that stays in float64, but it casts to {forward.output.dtype}.")
    errors = errors_of(forward.output)
    return gradients_at(forward.states, forward.output, errors.error)


def measure_noise(g: Tensor, g64: Tensor, keep: Tensor) -> Tensor:
    """Median over the rows kept of ‖g − g64‖ / ‖g64‖, both (…, rows, features).

    A row that overflowed although its float64 gradient is finite counts as pure noise.
    """
    reference = row_norms(g64)
    ratio = row_norms(g.double() - g64) / reference
    return median_where(torch.where(ratio.isfinite(), ratio, OVERFLOWED), usable(reference) & keep)


def doubled_inputs(inputs: Any) -> Any:
    """What a net is called with, in float64."""
    return tuple(map(double, inputs)) if isinstance(inputs, tuple) else double(inputs)


def double(value: Any) -> Any:
    """Floating tensors in float64, others as copies, so that a forward that counts (BatchNorm) counts in the copy."""
    if isinstance(value, Tensor) and not value.is_floating_point():
        return value.clone()
    return value.double() if hasattr(value, "double") else value
