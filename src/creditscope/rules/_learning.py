"""Feedback that is learned: random probes, and forward-mode products with the net's Jacobian."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from creditscope.rng import hashed_gaussians, salt_of
from creditscope.stack import as_arguments


def draw_counter(generator: torch.Generator) -> Tensor:
    """Where a rule's random probes come from: a key, and a count of the steps that were learned in (int64).

    Kept as the last of a rule's feedback tensors: a run that is resumed or stacked then goes on with the same probes.
    """
    return torch.cat([torch.randint(2**62, (1,), generator=generator), torch.zeros(1, dtype=torch.int64)])


def advanced(counter: Tensor, steps: int = 1) -> Tensor:
    """The counter of the next step, or of so many steps later."""
    return counter + steps * torch.arange(2, device=counter.device)


def gaussian_probe(counter: Tensor, shape: Sequence[int], dtype: torch.dtype, place: int = 0) -> Tensor:
    """A Gaussian tensor of one step; `place` tells apart those of the same step."""
    return hashed_gaussians(salt_of(counter[0], counter[1], place), shape, dtype)


def push_forward(
    net: nn.Module, taps: Sequence[str], inputs: Any, tensors: Mapping[str, Tensor], tangents: Sequence[Tensor]
) -> Tensor:
    """Derivatives of the output along each tangent alone, by forward mode, in one pass through the net.

    Every tap adds Σ_p s_p T_p to its state h, with all s at 0: the derivative by s_p is the one along T_p. What comes
    back is a copy, because the last bits of sums and products would depend on how many seeds lie between its rows.
    """
    probes = tangents[0].shape[0]
    at = tangents[0].new_zeros(len(taps), probes)
    directions = torch.eye(at.numel(), dtype=at.dtype, device=at.device).view(-1, *at.shape)

    def output(amounts: Tensor) -> Tensor:
        with ExitStack() as hooks:
            for tap, s, t in zip(taps, amounts, tangents, strict=True):
                shift = torch.tensordot(s, t, 1)
                hook = net.get_submodule(tap).register_forward_hook(lambda _, __, h, shift=shift: h + shift)
                hooks.callback(hook.remove)
            return functional_call(net, dict(tensors), as_arguments(inputs))

    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():  # fused attention has no forward mode
        warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)  # torch's own use
        pushed = torch.vmap(lambda direction: jvp(output, (at,), (direction,))[1])(directions)
    return pushed.unflatten(0, tuple(at.shape)).clone(memory_format=torch.contiguous_format)
