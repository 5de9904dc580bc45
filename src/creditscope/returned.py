"""What a model returns, and the tensor in it that a loss is of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from creditscope.errors import CreditscopeError

OutputReader = Callable[[Any], Tensor]
"""From what a model returns to its logits."""
USUAL = ("logits", "prediction_logits", "out", "sample", "last_hidden_state")
"""Names that libraries give to what a loss is of, first things first."""


class Read(nn.Module):
    """A model whose forward gives the logits alone; its modules and tensors are the model's own, by the same names."""

    def __init__(self, model: nn.Module, output: OutputReader):
        super().__init__()
        del self.training  # the model's own, by __getattr__
        self._modules, self._parameters, self._buffers = model._modules, model._parameters, model._buffers
        self._non_persistent_buffers_set = model._non_persistent_buffers_set
        self._read = (model, output)  # in a tuple: no submodule of this one

    def __getattr__(self, name: str) -> Any:
        """What a net says of itself (`class_token`, `added_parameters`)."""
        known = not name.startswith("__") and "_read" in vars(self)
        return getattr(self._read[0], name) if known else super().__getattr__(name)

    def train(self, mode: bool = True) -> "Read":
        self._read[0].train(mode)
        return self

    def forward(self, *arguments: Any, **named: Any) -> Tensor:
        model, output = self._read
        return output(model(*arguments, **named))


def all_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Every module of a model once, that inside a `Read` among them."""
    if isinstance(model, Read):
        yield bare(model)
    yield from model.modules()


def bare(model: nn.Module) -> nn.Module:
    """The model that a `Read` reads, or the model itself."""
    return model._read[0] if isinstance(model, Read) else model


def reader_of(output: OutputReader | str | int | None) -> OutputReader:
    """How the logits are picked: by a name, a place or a function; None: found by themselves."""
    if output is None:
        return read_logits
    if callable(output):
        return output
    if not isinstance(output, str | int):
        raise CreditscopeError(f"Expected output to be a name, a place or a function, but got {output!r}.")

    def pick(returned: Any) -> Tensor:
        try:
            if isinstance(output, str) and not isinstance(returned, Mapping):
                return _checked(getattr(returned, output), returned)
            return _checked(returned[output], returned)
        except (AttributeError, KeyError, IndexError, TypeError):
            raise CreditscopeError(
                f"Expected the model to return something with {output!r} in it, but got {_said(returned)}."
            ) from None

    return pick


def read_logits(output: Any) -> Tensor:
    """The tensor itself, the `logits` (or the like) of what a model returns, or the first tensor of a tuple.

    In a tuple or dictionary a loss, which has no rows, is passed over.

    >>> import torch
    >>> read_logits({"logits": torch.ones(1, 2), "loss": None})
    tensor([[1., 1.]])
    """
    if isinstance(output, Tensor):
        return output
    for name in USUAL:
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    parts = _parts(output)
    tensors = [t for t in parts.values() if isinstance(t, Tensor) and t.is_floating_point() and t.ndim > 1]
    if len(tensors) == 1 or (tensors and isinstance(output, Sequence)):
        return tensors[0]
    return _checked(None, output)


def _checked(found: Any, returned: Any) -> Tensor:
    if not isinstance(found, Tensor):
        raise CreditscopeError(
            "Expected a model that returns a tensor, or something with logits, but got "
            f"{_said(returned)}. Pass output=, a name, a place or a function that takes the logits out of it."
        )
    return found


def _parts(returned: Any) -> dict[Any, Any]:
    """What can be picked from, by name or place."""
    if isinstance(returned, Mapping):
        return dict(returned)
    if isinstance(returned, tuple | list):
        return dict(enumerate(returned))
    return dict(vars(returned)) if hasattr(returned, "__dict__") else {}


def _said(returned: Any) -> str:
    """The type of what came, and what is in it."""
    held = {k: tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__ for k, v in _parts(returned).items()}
    listed = ", ".join(f"{key!r}: {what}" for key, what in held.items())
    return f"a {type(returned).__name__}" + (f" of {listed}" if listed else "")
