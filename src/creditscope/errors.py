"""Errors in one voice: "Expected X, but got Y. Do Z.", where Z is left out if X tells it.

A part of a file that cannot be used is named first: "Record N cannot be read: Expected …". What is caught again and
told as a reason (`CannotStackError`) is a clause without capital and full stop.
"""

from collections.abc import Iterable


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
        listed = ", ".join(repr(c) if " " in c or "," in c else c for c in sorted(choices)) or "none"
        super().__init__(
            f"Expected the name of {'an' if kind[0] in 'aeiou' else 'a'} {kind}, but got {name!r}. Choices: {listed}."
        )


class UnfinishedError(CreditscopeError):
    """The time was over before the runs were; so many are left."""

    def __init__(self, message: str, *, left: int):
        super().__init__(message)
        self.left = left
