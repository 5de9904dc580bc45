"""Layers that torch lacks, such that a seed has the same numbers alone, stacked with others, and resumed."""

from typing import Any

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.rng import derive_seed, mix32, salt_of


class HashDropout(nn.Module):
    """Zeroes a share `p` of the entries in training and scales the rest by 1/(1 − p); `layer` tells layers apart.

    The mask is a hash of (seed key, step, layer, index): nothing is drawn (`nn.Dropout` draws from one global stream),
    so nothing has to be saved.
    """

    key: Tensor
    step: Tensor

    def __init__(self, p: float, layer: int):
        super().__init__()
        if not 0 <= p < 1:
            raise CreditscopeError(f"Expected a dropout share from 0 to below 1, but got {p}.")
        self.p, self.layer = p, layer
        self.register_buffer("key", torch.zeros((), dtype=torch.int64))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, h: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return h
        index = torch.arange(h.numel(), device=h.device, dtype=torch.int32).view(h.shape)
        bits = mix32(index ^ salt_of(self.key, self.step, self.layer).to(torch.int32))
        threshold = int(self.p * 2**32) - 2**31
        return h * (bits >= threshold) / (1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}, layer={self.layer}"


def seed_dropout(net: nn.Module, seed: int) -> None:
    """Give every dropout layer of `net` the key of this run."""
    for module in net.modules():
        if isinstance(module, HashDropout):
            module.key.fill_(derive_seed(seed, "dropout"))


def set_dropout_step(net: nn.Module, step: int) -> None:
    """Move every dropout layer of `net` to the masks of this training step."""
    for module in net.modules():
        if isinstance(module, HashDropout):
            module.step.fill_(step)


class PairNorm(nn.Module):
    """(x_i − x̄) / √(mean over nodes of ‖x_i − x̄‖²) for states (nodes, features); states all alike become 0.

    Zhao & Akoglu, "PairNorm: tackling oversmoothing in GNNs" (ICLR 2020), with s = 1.
    """

    def forward(self, x: Tensor) -> Tensor:
        return _CentredAndScaled.apply(x)[0]


class _CentredAndScaled(torch.autograd.Function):
    """Its own function because of many seeds: each is summed by itself, so its last bits do not depend on the others.

    The largest entry is divided out first, so that collapsed states (1e-30, say) do not underflow. The derivatives need
    the two results alone: u, the normed states of n nodes, and the norm that was divided out.
    """

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x - x.mean(-2, keepdim=True)
        largest = x.abs().amax((-2, -1), keepdim=True)
        largest = torch.where(largest == 0, 1.0, largest)
        x = x / largest
        length = x.square().sum(-1, keepdim=True).mean(-2, keepdim=True).sqrt()
        length = torch.where(length == 0, 1.0, length)
        return x / length, length * largest

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Tensor:
        """δ minus its part along u, centred, over the norm."""
        normed, length = ctx.saved_tensors
        delta = grad_outputs[0].contiguous()
        along = (delta * normed).sum((-2, -1), keepdim=True) / normed.shape[-2]
        delta = (delta - normed * along) / length
        return delta - delta.mean(-2, keepdim=True)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, None]:
        """The tangent, centred and over the norm, minus its part along u."""
        normed, length = ctx.saved_tensors
        tangent = grad_inputs[0]
        tangent = (tangent - tangent.mean(-2, keepdim=True)) / length
        along = (tangent * normed).sum((-2, -1), keepdim=True) / normed.shape[-2]
        return tangent - normed * along, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple[Any, tuple[int, int]]:
        """All seeds at once, seeds first."""
        return _CentredAndScaled.apply(args[0].movedim(in_dims[0], 0).contiguous()), (0, 0)
