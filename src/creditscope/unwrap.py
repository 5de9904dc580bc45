"""The model inside what others put around it: `torch.compile`, `DataParallel`, `DistributedDataParallel`."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


def unwrap(model: nn.Module) -> tuple[nn.Module, str]:
    """The model itself, and what its names begin with in the wrapped one.

    >>> unwrap(DataParallel(nn.Linear(2, 3)))
    (Linear(in_features=2, out_features=3, bias=True), 'module.')
    """
    prefix = ""
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model, prefix = model.module, f"{prefix}module."
        elif type(model).__name__ == "OptimizedModule" and isinstance(
            held := getattr(model, "_orig_mod", None), nn.Module
        ):
            model, prefix = held, f"{prefix}_orig_mod."
        else:
            return model, prefix


def without_prefix(names: Any, prefix: str) -> Any:
    """A name, names, or a dictionary by name, as in the model itself."""
    if not prefix or names is None:
        return names
    if isinstance(names, str):
        return names.removeprefix(prefix)
    if isinstance(names, Mapping):
        return {name.removeprefix(prefix): value for name, value in names.items()}
    return [name.removeprefix(prefix) for name in names] if isinstance(names, Sequence) else names
