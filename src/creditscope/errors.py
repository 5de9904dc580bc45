"""Errors in one voice: "Expected X, but got Y. Do Z.", where Z is left out if X tells it.

A part of a file that cannot be used is named first: "Record N cannot be read: Expected …". What is caught again and
told as a reason (`CannotStackError`) is a clause without capital and full stop.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher

ALIKE = 0.6
"""Share of letters in common from which on a name may be a mistyped one, as in `difflib`."""
OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED")
"""What errors of CUDA and Triton, and of cuBLAS, say of it."""


class CreditscopeError(ValueError):
    """Bad input: the message says what was expected, what came, and what to do; the command line prints it alone.

    >>> import creditscope as cs
    >>> cs.run(rule="nope")
    Traceback (most recent call last):
    creditscope.errors.UnknownNameError: Expected the name of a rule, but got 'nope'. Choices: ..., bp, ...
    """


class UnknownNameError(CreditscopeError):
    """A name that no registry entry, tap or option has."""

    def __init__(self, kind: str, name: str, choices: Iterable[str]):
        known = sorted(choices)
        listed = ", ".join(map(_quote, known)) or "none"
        super().__init__(
            f"Expected the name of {'an' if kind[0] in 'aeiou' else 'a'} {kind}, but got {name!r}."
            f"{tell_nearest(name, known)} Choices: {listed}."
        )


def tell_nearest(name: str, choices: Iterable[str]) -> str:
    """A sentence with the choice that is most like the name, whatever its case, and of several the first; or nothing.

    >>> tell_nearest("DFFA", ["bp", "dfa", "fdfa"]), tell_nearest("nope", ["bp", "dfa"])
    (' Nearest: dfa.', '')
    """
    typed = str(name).lower()
    alike = {choice: SequenceMatcher(None, choice.lower(), typed).ratio() for choice in choices}
    nearest = max(alike, key=lambda choice: alike[choice], default="")
    return f" Nearest: {_quote(nearest)}." if alike.get(nearest, 0) >= ALIKE else ""


def _quote(name: str) -> str:
    """If it would not be seen where it ends."""
    return repr(name) if " " in name or "," in name else name


def one_of(kind: str, name: str, choices: Iterable[str]) -> str:
    """The name, if it is among the choices."""
    if name not in choices:
        raise UnknownNameError(kind, name, choices)
    return name


class UnfinishedError(CreditscopeError):
    """The time was over before the runs were; so many are left."""

    def __init__(self, message: str, *, left: int):
        super().__init__(message)
        self.left = left


def raise_out_of_memory(error: Exception) -> None:
    """If the error says that a device's memory ran out, raise it, as torch's error whoever said so.

    >>> raise_out_of_memory(RuntimeError("Triton Error [CUDA]: out of memory"))
    Traceback (most recent call last):
    torch.OutOfMemoryError: Triton Error [CUDA]: out of memory
    >>> raise_out_of_memory(RuntimeError("Batching rule not implemented"))
    """
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        raise error
    if isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY):
        raise torch.OutOfMemoryError(str(error)) from error
