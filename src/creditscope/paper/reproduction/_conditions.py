"""The conditions that published numbers are read from, by name: fields of specs of the studies at scale "paper"."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from creditscope.paper.reproduction._file import DATA, as_tuple, check_keys, choose, naming
from creditscope.paper.studies._recipes import AT_THE_END, PAPER, VIT
from creditscope.paper.studies.bp_bottleneck import PLAIN, RECIPE
from creditscope.paper.studies.cross_architecture import TEACHER
from creditscope.paper.studies.reproduction import EVERY_EPOCH
from creditscope.record import RunSpec

Condition = dict[str, Any]
FIELDS = tuple(field.name for field in fields(RunSpec))
BP = {**PAPER, **AT_THE_END, "rule": "bp", "noise": False}
"""Read at its end: any record of the run serves."""
CONDITIONS: dict[str, Condition] = {
    "bp": BP,
    "vit": {**BP, "net": "vit", "net_options": VIT},
    "student": {**TEACHER, **EVERY_EPOCH, "rule": "bp", "noise": False},
    "gcn": {**RECIPE, "net_options": PLAIN},
}
"""Those that come from others are in the file."""


def make_condition(name: str, entry: Mapping[str, Any]) -> Condition:
    """The condition that it comes from with other fields, and other options of the net."""
    with naming(f"Condition {name!r}"):
        check_keys(entry, ("from",), FIELDS)
        base = choose("condition", entry["from"], CONDITIONS)
        changed = {key: value for key, value in entry.items() if key != "from"}
        return {**base, **changed, "net_options": {**base["net_options"], **entry.get("net_options", {})}}


def find_conditions(names: str | list[str]) -> list[Condition]:
    """One, or a list."""
    return [choose("condition", name, CONDITIONS) for name in as_tuple(names)]


for own, changes in DATA["conditions"].items():
    CONDITIONS[own] = make_condition(own, changes)
