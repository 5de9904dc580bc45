"""Randomness with names: every draw comes from (run seed, purpose, epoch), never from the global stream.

Some numbers are hashed from a key, a step and a place instead of drawn: nothing has to be saved to draw them again.
They are the same for a seed alone, in a stack, resumed and on any device (Gaussian ones but for rounding).
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Words = TypeVar("Words", Tensor, np.ndarray)
STEP, PLACE, INDEX = 0x9E3779B9, 0x85EBCA6B, -0x61C8864680B583EB


def derive_seed(seed: int, purpose: str, epoch: int = 0) -> int:
    """A 63-bit seed that depends on all three and on nothing else.

    >>> derive_seed(42, "order", 1) == derive_seed(42, "order", 1) != derive_seed(42, "order", 2)
    True
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}/{epoch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(seed: int, purpose: str, epoch: int = 0) -> torch.Generator:
    """A CPU generator for one purpose: the same numbers whatever the device and whatever else was drawn."""
    return torch.Generator().manual_seed(derive_seed(seed, purpose, epoch))


@contextmanager
def global_stream(seed: int, purpose: str) -> Iterator[None]:
    """For code that draws from torch's global stream (`nn.Linear`): seeded inside, put back after."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, purpose))
        yield


def mix32(x: Tensor) -> Tensor:
    """A bijective 32-bit finaliser (murmur3's constants); int32 wraps, shifts are made logical by a mask."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * -0x7A143595
    x = (x ^ ((x >> 13) & 0x7FFFF)) * -0x3D4D51CB
    return x ^ ((x >> 16) & 0xFFFF)


def mix64(x: Words) -> Words:
    """The same for 64 bits (splitmix64's constants)."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def salt_of(key: Tensor, step: Tensor, place: int) -> Tensor:
    """One 64-bit number for all that is hashed in one place (a layer, a probe) at one step."""
    return mix64(key + step * STEP + place * PLACE)


def hashed_gaussians(salt: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Standard normal numbers: splitmix64 counts from the salt, Box–Muller turns each 64 bits into two numbers.

    Of many salts all in one go, theirs in front.
    """
    count = math.prod(shape)
    words = mix64(salt.unsqueeze(-1) + torch.arange((count + 1) // 2, device=salt.device) * INDEX)
    radius, turn = ((half.to(dtype) + 0.5) * 2.0**-32 for half in ((words >> 32) & 0xFFFFFFFF, words & 0xFFFFFFFF))
    radius, angle = (-2 * radius.log()).sqrt(), 2 * math.pi * turn
    numbers = torch.cat([radius * angle.cos(), radius * angle.sin()], -1)[..., :count]
    return numbers.reshape(*salt.shape, *shape)


def gaussians_of_many(
    counters: Sequence[Tensor], places: Sequence[int], shape: Sequence[int], dtype: torch.dtype
) -> list[Tensor]:
    """The same for several keys and steps, each (2,), and places, in one go.

    On a CPU, outside of any map, by NumPy: a quarter of torch's time, other in the last bits.
    """
    by_numpy = {torch.float32: np.float32, torch.float64: np.float64}.get(dtype)
    if by_numpy is None or counters[0].device.type != "cpu" or torch._C._are_functorch_transforms_active():
        salts = torch.stack([c[0] + c[1] * STEP + place * PLACE for c, place in zip(counters, places, strict=True)])
        return list(hashed_gaussians(mix64(salts), shape, dtype).unbind())
    count, own = math.prod(shape), np.stack([c.numpy() for c in counters])
    salts = mix64(own[:, :1] + own[:, 1:] * STEP + np.array(places)[:, None] * PLACE)
    words = mix64(salts + np.arange((count + 1) // 2) * INDEX).view(np.uint32)  # halves, of which the lower comes first
    radius, angle = (words[:, i::2].astype(by_numpy) for i in (1, 0))
    for half in (radius, angle):
        half += 0.5
        half *= 2.0**-32
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    angle *= 2 * math.pi
    found = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], -1)[:, :count]
    return list(torch.from_numpy(found).reshape(len(own), *shape))
