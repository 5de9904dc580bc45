"""The data file `published.toml`, and what is said of a part of it that cannot be used."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from creditscope.errors import CreditscopeError, UnknownNameError

T = TypeVar("T")
FILE = Path(__file__).with_name("published.toml")
DATA = tomllib.loads(FILE.read_text(encoding="utf-8"))


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Say what it is that cannot be used."""
    try:
        yield
    except CreditscopeError as error:
        raise CreditscopeError(f"{what} of {FILE.name} cannot be used: {error}") from error
    except TypeError as error:
        said = f"Expected as many conditions and arguments as it is read with, but got others: {error}. Mend it."
        raise CreditscopeError(f"{what} of {FILE.name} cannot be used: {said}") from error


def choose(kind: str, name: str, choices: Mapping[str, T]) -> T:
    """What has the name."""
    if name not in choices:
        raise UnknownNameError(kind, name, choices)
    return choices[name]


def check_keys(entry: Mapping[str, Any], needed: Collection[str], others: Collection[str] = ()) -> None:
    """Every key that is needed, and none that is not known."""
    for key in entry:
        choose("key", key, dict.fromkeys((*needed, *others)))
    missing = [key for key in needed if key not in entry]
    if missing:
        raise CreditscopeError(f"Expected keys {', '.join(needed)}, but got no {', '.join(missing)}. Add them.")


def as_tuple(value: Any) -> tuple[Any, ...]:
    """One, or a list, as a tuple."""
    return tuple(value) if isinstance(value, list) else (value,)
