"""The published numbers, from `published.toml`: the head of the file says how one is written down."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.paper.reproduction._conditions import find_conditions
from creditscope.paper.reproduction._file import DATA, as_tuple, check_keys, choose, naming
from creditscope.paper.reproduction._readers import READERS
from creditscope.paper.reproduction._readings import Reading, difference, first_is_best, read
from creditscope.paper.reproduction._settings import CONVENTIONS, Make, under_all
from creditscope.paper.reproduction.compare import Alternative, Published

OF_SEVERAL: dict[str, Make] = {"gain": difference, "first_is_best": lambda *conditions: first_is_best(conditions)}
"""Readings of accuracies under more than one condition, by the names that the file has for them."""
NEEDED = ("id", "quantity", "said", "condition", "read")
KNOWN = ("kind", "sd", "n", "scale", "apart")
"""Taken as they are."""
CHOICES = {"kind": ("value", "range", "seeds", "claim"), "scale": ("linear", "log10")}


def make_number(entry: Mapping[str, Any], part: str) -> Published:
    """An entry of the file, under the heading of its part."""
    with naming(f"Number {entry.get('id')!r}"):
        check_keys(entry, NEEDED, (*KNOWN, "at_input", "alternatives"))
        said, how = as_tuple(entry["said"]), entry["read"]
        known = {"kind": "range" if len(said) > 1 else "value", **{key: entry[key] for key in KNOWN if key in entry}}
        for key in CHOICES.keys() & known.keys():
            choose(key, known[key], dict.fromkeys(CHOICES[key]))
        if known["kind"] != "claim":
            _check_digits([*said, entry.get("sd", "0")])
        return Published(
            id=entry["id"],
            part=part,
            quantity=entry["quantity"],
            said=said,
            accuracy=how in ("accuracy", "gain"),
            readings=_read_under_all(entry),
            alternatives=tuple(_make_alternative(other, entry) for other in entry.get("alternatives", ())),
            **known,
        )


def _read_under_all(entry: Mapping[str, Any]) -> dict[str, Reading]:
    at_input = entry.get("at_input")
    as_published = _find_reading(at_input) if at_input else None
    readings = dict(under_all(find_conditions(entry["condition"]), _find_reading(entry["read"]), as_published))
    if at_input is False:
        del readings[CONVENTIONS]
    return readings


def _make_alternative(other: Mapping[str, Any], entry: Mapping[str, Any]) -> Alternative:
    check_keys(other, ("label",), ("condition", "read"))
    merged = {**entry, **other}
    return Alternative(other["label"], _find_reading(merged["read"])(*find_conditions(merged["condition"])))


def _find_reading(text: str) -> Make:
    """Of "name argument … option=argument …"."""
    if text in OF_SEVERAL:
        return OF_SEVERAL[text]
    name, *words = text.split()
    pairs = [word.rpartition("=") for word in words]
    arguments = [_number_or_word(value) for key, _, value in pairs if not key]
    options = {key: _number_or_word(value) for key, _, value in pairs if key}
    return partial(read, reader=choose("reader", name, READERS)(*arguments, **options))


def _number_or_word(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _check_digits(said: Iterable[Any]) -> None:
    for text in said:
        if not isinstance(text, str) or not re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text):
            raise CreditscopeError(f'Expected digits as text, as in "0.250", but got {text!r}. Write them as printed.')


PUBLISHED = tuple(make_number(entry, part["title"]) for part in DATA["parts"] for entry in part["numbers"])
"""In the order of the page."""
WHERE: dict[str, str] = {part["title"]: part["said_in"] for part in DATA["parts"]}
"""Where the numbers of a part are said."""
NOT_COMPARED: tuple[str, ...] = tuple(DATA["not_compared"])
"""Published numbers that no run here could give."""
