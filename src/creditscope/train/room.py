"""Room on a GPU that several processes share: what one has no memory for now, it may have in a moment."""

import gc
import time
from collections.abc import Callable

import torch

PATIENCE = 120.0
"""Seconds to wait for others to give memory back."""
OTHERS = 8
"""They are not waited for if all that is taken on the device is less than this part of it: they would not help."""
SPARE = 1.25
"""How much of what was taken when the memory ran out must be free: that, and what was asked for last."""


def peak_bytes(device: torch.device) -> int:
    """The most memory that this process held on the device since `forget_peak`."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0


def forget_peak(device: torch.device) -> None:
    """Count from here on."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def release_memory(device: torch.device) -> None:
    """Give back to the device all that is not in use."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def wait_for_room(device: torch.device, peak: int, should_stop: Callable[[], bool]) -> bool:
    """Whether there is room for a second try, where the first ran out of memory at `peak` bytes.

    Others who hold memory of the device are given time to release it.
    """
    if device.type != "cuda":
        return False
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not should_stop():
        free, total = torch.cuda.mem_get_info(device)
        if total - free < total / OTHERS:
            return False
        if free >= SPARE * peak:
            return True
        time.sleep(1)
    return False
