"""NAME=VALUE and seeds as typed on the command line."""

from collections.abc import Sequence
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


def read_seeds(words: Sequence[str]) -> int | list[int]:
    """As `creditscope.run` takes them: a number alone is how many; several, or one with a comma, are the seeds.

    >>> read_seeds(["3"]), read_seeds(["42", "7"]), read_seeds(["42,"])
    (3, [42, 7], [42])
    """
    parts = [part for word in words for part in word.split(",") if part]
    try:
        seeds = [int(part) for part in parts]
    except ValueError:
        raise CreditscopeError(f"Expected --seeds to be whole numbers, but got {' '.join(words)!r}.") from None
    return seeds[0] if list(words) == parts and len(parts) == 1 else seeds
