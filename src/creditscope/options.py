"""Options of nets, rules and tasks: the keyword arguments their constructors declare."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from creditscope.errors import CreditscopeError, UnknownNameError

Scalar = bool | int | float | str


def declared_options(factory: Callable[..., Any]) -> dict[str, Scalar]:
    """Keyword-only parameters of `factory` with a plain default, in order."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and isinstance(parameter.default, Scalar)
    }


def resolve_options(factory: Callable[..., Any], given: Mapping[str, Any], *, owner: str) -> dict[str, Scalar]:
    """All options of `factory` with `given` ones checked and put in.

    >>> def net(*, depth=4, norm=True): ...
    >>> resolve_options(net, {"depth": "6"}, owner="net 'toy'")
    {'depth': 6, 'norm': True}
    """
    options = declared_options(factory)
    for name, value in given.items():
        if name not in options:
            raise UnknownNameError(f"option of {owner}", name, options)
        options[name] = _convert(value, like=options[name], name=name, owner=owner)
    return options


def written_options(factory: Callable[..., Any], given: Mapping[str, Any], *, owner: str) -> dict[str, Scalar]:
    """The same as a spec writes them out: without options of `factory.later_options` that have their default."""
    usual, later = declared_options(factory), getattr(factory, "later_options", ())
    resolved = resolve_options(factory, given, owner=owner)
    return {name: value for name, value in resolved.items() if name not in later or value != usual[name]}


def _convert(value: Any, *, like: Scalar, name: str, owner: str) -> Scalar:
    wanted = type(like)
    try:
        if wanted is bool and isinstance(value, str):
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        if wanted is bool and not isinstance(value, bool):
            raise ValueError
        if wanted is int and (isinstance(value, bool) or (not isinstance(value, str) and value != int(value))):
            raise ValueError
        return wanted(value)
    except (KeyError, TypeError, ValueError):
        raise CreditscopeError(
            f"Expected option {name!r} of {owner} to be of type {wanted.__name__} (default {like!r}), "
            f"but got {value!r}."
        ) from None
