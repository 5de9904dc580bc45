"""NAME=VALUE as typed on the command line."""

from typing import Any

from creditscope.errors import CreditscopeError


def parse_settings(settings: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """`net.depth=6` and the like, by owner.

    >>> parse_settings(("net.depth=6",))["net_options"]
    {'depth': '6'}
    """
    options: dict[str, dict[str, Any]] = {"task_options": {}, "net_options": {}, "rule_options": {}}
    for setting in settings:
        name, value = split_pair(setting)
        owner, dot, option = name.partition(".")
        if not dot or f"{owner}_options" not in options:
            raise CreditscopeError(
                f"Expected --set net.NAME=VALUE, rule.NAME=VALUE or task.NAME=VALUE, but got {setting!r}."
            )
        options[f"{owner}_options"][option] = value
    return options


def split_pair(setting: str) -> tuple[str, str]:
    """NAME=VALUE in two."""
    name, equals, value = setting.partition("=")
    if not equals:
        raise CreditscopeError(f"Expected --set NAME=VALUE, but got {setting!r}.")
    return name, value


def read_number(name: str, value: str) -> float:
    """The value of a threshold; a whole one stays whole."""
    try:
        number = float(value)
        return int(number) if number == int(number) else number
    except (ValueError, OverflowError):
        raise CreditscopeError(f"Expected a number for threshold {name!r}, but got {value!r}.") from None
