"""Where runs are trained: `here` (processes of this machine), a cluster's engine, or anybody's executor."""

import pkgutil
from collections.abc import Mapping
from concurrent.futures import Future
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, Protocol

import torch

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.train.device import available_cores


class Slot(Protocol):
    """One worker, or room for one: a job at a time."""

    def submit(self, function: Any, text: str) -> "Future[Any]":
        """Call function(text) there; the function is named, not sent, and the result is plain."""
        ...

    def renew(self) -> None:
        """Another worker in place of one that died or was asked to stop; the next job goes to it."""
        ...

    def close(self) -> None:
        """End it now, with whatever it does."""
        ...


class Place(Protocol):
    """So many slots, and what the driver must know of them."""

    name: str
    device: torch.device
    """What groups are made for, and trained on."""
    count: int
    """Slots it would open for very many groups."""
    outlives: bool
    """Whether jobs go on when their driver ends."""
    whole: bool
    """Whether a slot is given its share of all groups at once, instead of one after the other."""

    def open(self, count: int) -> list[Slot]:
        """So many slots, which get ready while the caller sees to other things."""
        ...


class Executor:
    """Anybody's executor: what has `submit(function, text)` and gives futures."""

    name, outlives, whole = "executor", False, False

    def __init__(self, executor: Any, *, device: str, slots: int | None):
        self.executor, self.device = executor, torch.device("cpu" if device == "auto" else device)
        self.count = slots or available_cores()

    def open(self, count: int) -> list[Slot]:
        return [_ExecutorSlot(self.executor) for _ in range(count)]


class _ExecutorSlot:
    """It is the caller's: what becomes of its workers is up to it."""

    def __init__(self, executor: Any):
        self.submit = executor.submit

    def renew(self) -> None: ...
    def close(self) -> None: ...


def find_place(on: Any, *, device: str, slots: int | None, settings: Mapping[str, Mapping[str, Any]]) -> Place:
    """The place called `on` ("here", "NAME" or "NAME:ADDRESS"), or one around an executor; `settings` go by name."""
    if hasattr(on, "submit"):
        return Executor(on, device=device, slots=slots)
    name, _, address = str(on).partition(":")
    if name not in (known := [module.name for module in pkgutil.iter_modules(__path__)]):
        raise UnknownNameError("place to train at", str(on), known)
    if other := sorted(set(settings) - {name}):
        raise CreditscopeError(f"Expected settings of {name}, where runs are trained, but got some of {other[0]}.")
    make, given = import_module(f"{__name__}.{name}").make_place, dict(settings.get(name, {}))
    if address:
        given["address"] = address
    taken = signature(make).parameters
    open_ended = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in taken.values())
    if not open_ended and (unknown := [key for key in given if key not in taken]):
        raise CreditscopeError(f"Expected no {unknown[0]} of place {name}, but got {given[unknown[0]]!r}.")
    return make(device=device, slots=slots, **given)


def import_extra(module: str, extra: str) -> Any:
    """A library that is installed only with an extra of ours."""
    try:
        return import_module(module)
    except ImportError as error:
        raise CreditscopeError(
            f"Expected {module} to be installed, but got: {error}. Run pip install 'creditscope[{extra}]'."
        ) from error
