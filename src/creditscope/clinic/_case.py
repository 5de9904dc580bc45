"""A case of the clinic: a kind of net, in an architecture, with the fault that must be named, or none; and its half."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from creditscope.clinic._patient import Patient, admit
from creditscope.clinic.results import HEALTHY, Half

STEPS = 60


@dataclass(frozen=True)
class Case:
    """What is admitted, and what must be said of it."""

    kind: str
    """The fault, or `HEALTHY`, or `YOUNG`."""
    architecture: str
    """Or, of a healthy net, what it is."""
    admit: Callable[[], Patient]
    codes: tuple[str, ...] = ()
    """The code that must come first: one, or several that are names of the same fault; none of a healthy net."""
    refusal: bool = False
    """Whether a refusal of the snapshot, in words, is as good: torch itself cannot train on it."""
    steps: int = STEPS
    needs: tuple[str, ...] = ()
    """Libraries without which it is left out."""

    @property
    def name(self) -> str:
        """Unique."""
        return f"{self.kind}, {self.architecture}"


@dataclass(frozen=True)
class Admit:
    """Admits patients of one architecture."""

    architecture: str

    def __call__(self, **options: Any) -> Patient:
        return admit(self.architecture, **options)


FAULTS: list[Case] = []
WELL: list[Case] = []


def fault(
    kind: str, *codes: str, on: Sequence[str], refusal: bool = False, steps: int = STEPS
) -> Callable[[Callable[[Admit], Patient]], Callable[[Admit], Patient]]:
    """Decorator of a function that admits a patient and does the fault to it: a case in each architecture."""

    def keep(spoil: Callable[[Admit], Patient]) -> Callable[[Admit], Patient]:
        for architecture in on:
            make = partial(spoil, Admit(architecture))
            FAULTS.append(Case(kind, architecture, make, codes, refusal, steps))
        return spoil

    return keep


def healthy(
    what: str, *, kind: str = HEALTHY, needs: Sequence[str] = (), steps: int = STEPS
) -> Callable[[Callable[[], Patient]], Callable[[], Patient]]:
    """Decorator of a function that makes a healthy patient."""

    def keep(make: Callable[[], Patient]) -> Callable[[], Patient]:
        WELL.append(Case(kind, what, make, steps=steps, needs=tuple(needs)))
        return make

    return keep


def split(cases: Iterable[Case]) -> dict[str, Half]:
    """Name → half. By names alone, before anything is examined.

    Cases of a kind, in the order of the SHA-256 of their names, go alternately to setting and to reporting; which comes
    first is the parity of the SHA-256 of the kind. So every kind is in both halves, in different architectures.
    """
    kinds: dict[str, list[str]] = {}
    for case in cases:
        kinds.setdefault(case.kind, []).append(case.name)
    halves: tuple[Half, Half] = ("setting", "reporting")
    return {
        name: halves[(at + _digest(kind)) % 2]
        for kind, names in kinds.items()
        for at, name in enumerate(sorted(names, key=_digest))
    }


def _digest(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)
