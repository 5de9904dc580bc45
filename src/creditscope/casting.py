"""The caller's autocast and loss scale, under which gradients are what training sees: they may underflow."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from creditscope.errors import CreditscopeError


@dataclass(frozen=True)
class Casting:
    """Autocast to a number format on a kind of device (None: off), and the factor of the loss (None: none)."""

    device: str
    dtype: torch.dtype | None = None
    scale: float | None = None

    @classmethod
    def of_caller(cls, device: str, scale: Any = None) -> "Casting":
        """As it is where this is called; `scale` is a number or a `GradScaler`."""
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        known = scale.get_scale() if hasattr(scale, "get_scale") else scale
        if known is not None and not (isinstance(known, int | float) and known > 0):
            raise CreditscopeError(f"Expected loss_scale to be a number above 0 or a GradScaler, but got {scale!r}.")
        return cls(device, dtype, None if known is None else float(known))

    def __bool__(self) -> bool:
        """Whether there is anything to measure under."""
        return self.dtype is not None or self.scale is not None

    def __str__(self) -> str:
        """
        >>> str(Casting("cuda", torch.float16, 1024.0))
        'autocast float16, loss scale 1024'
        """
        name = "" if self.dtype is None else f"autocast {str(self.dtype).removeprefix('torch.')}"
        return ", ".join(part for part in (name, f"loss scale {self.scale:g}" if self.scale else "") if part)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Inside, a forward is cast as the caller's is."""
        if self.dtype is None:
            yield
        else:
            with torch.autocast(self.device, dtype=self.dtype, cache_enabled=False):
                yield

    def factor(self, rows: Any) -> Any:
        """What the error of a row is multiplied by in training: the loss is a mean over rows, times the scale."""
        return (self.scale or 1.0) / rows
