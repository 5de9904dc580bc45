"""The scales of studies: one study at a scale, all studies that have it, and the largest that has records."""

import inspect
from collections.abc import Sequence
from typing import Any

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.paper.studies._study import Study, find_wanted
from creditscope.record import Record
from creditscope.registry import STUDIES

LARGEST_FIRST = ("paper", "demo")


def resolve_study(name: str, scale: str = "") -> Study:
    """The study at its own scale, or at the one asked for; one without scales is at "demo"."""
    make = STUDIES.get(name)
    if _has_scales(make):
        return make(scale) if scale else make()
    if scale not in ("", "demo"):
        raise CreditscopeError(
            f"Expected a study with several scales, but got scale {scale!r} for {name!r}, which has one. Leave it out."
        )
    return make()


def studies_at(scale: str) -> list[Study]:
    """Every study that has scales and this one among them, by name."""
    found = []
    for name in STUDIES.names():
        if _has_scales(STUDIES.get(name)):
            try:
                found.append(resolve_study(name, scale))
            except UnknownNameError:
                continue
    if not found:
        raise CreditscopeError(f"Expected a scale that studies have, such as demo or paper, but got {scale!r}.")
    return found


def scale_on_record(name: str, records: Sequence[Record]) -> tuple[str, bool]:
    """The largest scale of a study that has records, and True; if none has, its own and False ("": has no scales)."""
    make = STUDIES.get(name)
    if not _has_scales(make):
        return "", bool(find_wanted(make(), records))
    for scale in LARGEST_FIRST:
        try:
            study = resolve_study(name, scale)
        except UnknownNameError:
            continue
        if find_wanted(study, records):
            return scale, True
    own = inspect.signature(make).parameters["scale"].default
    return ("" if own is inspect.Parameter.empty else own), False


def study_on_record(name: str, records: Sequence[Record]) -> Study:
    """The study at the largest scale that has records; at its own if none has."""
    return resolve_study(name, scale_on_record(name, records)[0])


def _has_scales(make: Any) -> bool:
    return "scale" in inspect.signature(make).parameters
