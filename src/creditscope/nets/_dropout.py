"""Dropout whose mask is a hash of (seed key, step, layer, index): nothing is drawn, so nothing has to be saved.

`nn.Dropout` draws from one global stream; this one gives a seed the same masks alone, stacked, resumed and on any
device.
"""

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.rng import derive_seed, mix32, salt_of


class HashDropout(nn.Module):
    """Zeroes a share `p` of the entries in training and scales the rest by 1/(1 − p); `layer` tells layers apart."""

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
        """h with its mask applied; h itself in eval mode."""
        if not self.training or self.p == 0:
            return h
        index = torch.arange(h.numel(), device=h.device, dtype=torch.int32).view(h.shape)
        salt = salt_of(self.key, self.step, self.layer)
        bits = mix32(index ^ salt.to(torch.int32))
        threshold = int(self.p * 2**32) - 2**31
        return h * (bits >= threshold) / (1 - self.p)

    def extra_repr(self) -> str:
        """As printed."""
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
