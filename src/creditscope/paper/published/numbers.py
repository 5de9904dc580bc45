"""The published numbers, from `published.toml`: the head of the file says how one is written down."""

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.paper.published.readings import (
    OF_THE_END,
    READERS,
    Condition,
    Reader,
    Reading,
    first_is_best,
    gain,
    read_each,
)
from creditscope.paper.studies._recipes import AT_THE_END, PAPER, VIT
from creditscope.paper.studies.bp_bottleneck import PLAIN, RECIPE
from creditscope.paper.studies.conventions import BLOCK_FA, DFA
from creditscope.paper.studies.cross_architecture import TEACHER
from creditscope.paper.studies.reproduction import EVERY_EPOCH
from creditscope.record import RunSpec

T = TypeVar("T")
Make = Callable[..., Reading]
"""From conditions to a reading of them."""
FILE = Path(__file__).with_name("published.toml")
DATA = tomllib.loads(FILE.read_text(encoding="utf-8"))
OF_SEVERAL: dict[str, Make] = {"gain": gain, "first_is_best": first_is_best}
"""Readings of accuracies under more than one condition, by the names that the file has for them."""
NEEDED, KNOWN = ("id", "quantity", "said", "condition", "read"), ("kind", "sd", "n", "scale", "apart")
"""Keys of a number; those known are taken as they are."""
CHOICES = {"kind": ("value", "range", "seeds", "claim"), "scale": ("linear", "log10")}


@dataclass(frozen=True)
class Conventions:
    """One consistent choice for all numbers, so that each is asked what it gives jointly; on the page a setting.

    Rules that it does not speak of are as they are.
    """

    name: str
    title: str
    words: str


OURS, BATCH, SAMPLE, AS_PUBLISHED = "none", "batch", "sample", "published"
SETTINGS = (
    Conventions(OURS, "ours", "credit as it is, told and read at a block's own tap"),
    Conventions(BATCH, "batch", "the same with credit divided by its RMS over the batch"),
    Conventions(SAMPLE, "sample", "the same with credit divided by its RMS over each sample"),
    Conventions(
        AS_PUBLISHED,
        "published conventions",
        "credit per sample, block FA's on gradients of the mean loss and its chain as it is; DFA's indexed by the "
        "block's input; cosines of what a block is given with the gradient at its input; random targets redrawn",
    ),
)
RULES = {str(fields["rule"]): fields for fields in (BLOCK_FA, DFA)}
"""Rules whose conventions are in question, as the publication had them."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published number and where it would be read on our records."""

    id: str
    part: str
    """The heading it is listed under."""
    quantity: str
    said: tuple[str, ...]
    """Digits as printed: one value, the ends of a range, or one value per seed; of a claim its words."""
    kind: Literal["value", "range", "seeds", "claim"] = "value"
    sd: str = ""
    n: int | None = None
    scale: Literal["linear", "log10"] = "linear"
    accuracy: bool = False
    readings: Mapping[str, Reading]
    """By setting; one that cannot have the number is left out."""
    alternatives: tuple[tuple[str, Reading], ...] = ()
    """The same number under other conditions that may be the published one, each with its label."""
    conditions: tuple[Condition, ...] = ()
    """The runs it is read from."""
    reader: Reader | None = None
    """Of one run, where its end says all."""
    apart: str = ""
    """Why it is not like for like, if it is not: it is shown, and not counted."""

    @property
    def reading(self) -> Reading:
        return self.readings[OURS]

    @property
    def depends(self) -> bool:
        """Whether a convention of the rule changes it."""
        return len({id(reading) for reading in self.readings.values()}) > 1

    @property
    def spread(self) -> float | None:
        """The published sd over seeds, if it is known."""
        if self.kind == "seeds":
            return float(np.std([float(text) for text in self.said], ddof=1))
        return float(self.sd) if self.sd else None

    @property
    def seeds(self) -> int:
        """m, 1 if not stated."""
        return len(self.said) if self.kind == "seeds" else self.n or 1

    def bounds(self) -> tuple[float, float]:
        """All numbers that round to what was said; of one value per seed the mean alone."""
        numbers = [float(text) for text in self.said]
        if self.kind == "seeds":
            middle = float(np.mean(numbers))
            return middle, middle
        half = max(unit_of(text) for text in self.said) / 2
        return min(numbers) - half, max(numbers) + half


def unit_of(text: str) -> float:
    """What the last printed digit stands for.

    >>> unit_of("0.615"), unit_of("1.8e-5"), unit_of("2e2"), unit_of("3")
    (0.001, 1e-06, 100.0, 1.0)
    """
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(f"1e{int(exponent or 0) - decimals}")


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


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """One, or a list, as a tuple."""
    return tuple(value) if isinstance(value, list) else (value,)


def find_conditions(names: str | list[str]) -> list[Condition]:
    """One, or a list, by name."""
    return [choose("condition", name, CONDITIONS) for name in _as_tuple(names)]


def make_condition(name: str, entry: Mapping[str, Any]) -> Condition:
    """The condition that it comes from with other fields, and other options of the net."""
    with naming(f"Condition {name!r}"):
        check_keys(entry, ("from",), [field.name for field in fields(RunSpec)])
        base = choose("condition", entry["from"], CONDITIONS)
        changed = {key: value for key, value in entry.items() if key != "from"}
        return {**base, **changed, "net_options": {**base["net_options"], **entry.get("net_options", {})}}


def make_number(entry: Mapping[str, Any], part: str) -> Published:
    """An entry of the file, under the heading of its part."""
    with naming(f"Number {entry.get('id')!r}"):
        check_keys(entry, NEEDED, (*KNOWN, "at_input", "alternatives"))
        said = _as_tuple(entry["said"])
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
            accuracy=entry["read"] in ("accuracy", "gain"),
            readings=_read_under_all(entry),
            conditions=tuple(find_conditions(entry["condition"])),
            reader=_find_reader(entry["read"]) if entry["read"].split()[0] in OF_THE_END else None,
            alternatives=tuple(_make_alternative(other, entry) for other in entry.get("alternatives", ())),
            **known,
        )


def _read_under_all(entry: Mapping[str, Any]) -> dict[str, Reading]:
    """By setting; where no convention changes the conditions it is one and the same."""
    conditions, at_input = find_conditions(entry["condition"]), entry.get("at_input")
    make = _find_reading(entry["read"])
    by_setting = {s.name: make for s in SETTINGS} | ({AS_PUBLISHED: _find_reading(at_input)} if at_input else {})
    if any(condition["rule"] in RULES for condition in conditions):
        found = {name: own(*(_under(name, c) for c in conditions)) for name, own in by_setting.items()}
    else:
        found = dict.fromkeys(by_setting, make(*conditions))
    return {name: reading for name, reading in found.items() if name != AS_PUBLISHED or at_input is not False}


def _under(setting: str, condition: Condition) -> Condition:
    """A condition under a setting; what credit is indexed by changes nothing where blocks are frozen."""
    if condition["rule"] not in RULES:
        return condition
    if setting != AS_PUBLISHED:
        return {**condition, "credit_norm": setting}
    own = RULES[condition["rule"]]
    if condition.get("frozen"):
        return {**condition, "credit_norm": own["credit_norm"]}
    targets = {"targets": "redrawn"} if condition.get("targets") == "random" else {}
    return {**condition, **own, **targets}


def _make_alternative(other: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str, Reading]:
    check_keys(other, ("label",), ("condition", "read"))
    merged = {**entry, **other}
    return other["label"], _find_reading(merged["read"])(*find_conditions(merged["condition"]))


def _find_reading(text: str) -> Make:
    """Of "name argument … option=argument …"."""
    if text in OF_SEVERAL:
        return OF_SEVERAL[text]
    return partial(read_each, reader=_find_reader(text))


def _find_reader(text: str) -> Reader:
    name, *words = text.split()
    pairs = [word.rpartition("=") for word in words]
    arguments = [_number_or_word(value) for key, _, value in pairs if not key]
    options = {key: _number_or_word(value) for key, _, value in pairs if key}
    return choose("reader", name, READERS)(*arguments, **options)


def _number_or_word(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _check_digits(said: Iterable[Any]) -> None:
    for text in said:
        if not isinstance(text, str) or not re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text):
            raise CreditscopeError(f'Expected digits as text, as in "0.250", but got {text!r}. Write them as printed.')


BP = {**PAPER, **AT_THE_END, "rule": "bp", "noise": False}
"""Read at its end: any record of the run serves."""
CONDITIONS: dict[str, Condition] = {
    "bp": BP,
    "vit": {**BP, "net": "vit", "net_options": VIT},
    "student": {**TEACHER, **EVERY_EPOCH, "rule": "bp", "noise": False},
    "gcn": {**RECIPE, "net_options": PLAIN},
}
"""The conditions that published numbers are read from, by name; those that come from others are in the file."""
for own, changes in DATA["conditions"].items():
    CONDITIONS[own] = make_condition(own, changes)
PUBLISHED = tuple(make_number(entry, part["title"]) for part in DATA["parts"] for entry in part["numbers"])
"""In the order of the page."""
