"""Watch a case while it is trained a little, and compare what the audit says with what was done to it."""

import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec

import torch

from creditscope.auditing import Audit
from creditscope.clinic._case import Case
from creditscope.clinic._patient import SEED, Patient, seeded
from creditscope.clinic.results import Half, Result, When
from creditscope.errors import CreditscopeError
from creditscope.scope import Scope, watch

WELL_WORDS: dict[When, tuple[str, ...]] = {"start": ("not trained yet", "healthy"), "trained": ("healthy",)}
"""What is said of a net without fault."""
WHENS: tuple[When, When] = ("start", "trained")
SNAPSHOTS = 3
"""Beside the one at the start."""


def is_available(case: Case) -> bool:
    """Whether the libraries are there that a case needs."""
    return all(find_spec(name) for name in case.needs)


def examine(case: Case, half: Half) -> list[Result]:
    """Of a broken net what is said when it is trained; of a healthy one at the start, too."""
    began, patient = time.perf_counter(), case.admit()
    results: list[Result] = []

    def keep(when: When, found: Audit | CreditscopeError) -> None:
        results.append(judge(case, half, when, patient, found, time.perf_counter() - began))

    try:
        for scope, when in zip(follow(case, patient), WHENS, strict=False):
            if when == "trained" or not case.codes:
                keep(when, scope.audit())
    except CreditscopeError as error:
        keep("trained", error)
    return results


def follow(case: Case, patient: Patient) -> Iterator[Scope]:
    """What watches it, after the first snapshot and again when it is trained a little."""
    generator, steps = torch.Generator().manual_seed(SEED.get()), case.steps // SNAPSHOTS
    with seeded():  # dropout draws from the global stream
        scope = watch(patient.model, loss=patient.loss, **patient.options)
        look(scope, patient, step=0)
        yield scope
        for at in range(1, SNAPSHOTS + 1):
            patient.train(steps, generator)
            look(scope, patient, step=at * steps)
        yield scope


def look(scope: Scope, patient: Patient, *, step: int) -> None:
    """One snapshot, in the mode that the patient wants."""
    inputs = patient.inputs if patient.seen is None else patient.seen
    target = patient.target if patient.seen_target is None else patient.seen_target
    patient.model.train(not patient.evaluated)
    scope.snapshot(inputs, target, mask=patient.mask, step=step)


def judge(
    case: Case, half: Half, when: When, patient: Patient, found: Audit | CreditscopeError, seconds: float
) -> Result:
    """Compare."""
    shared = (case.kind, case.architecture, half, when, case.codes, patient.where)
    if isinstance(found, CreditscopeError):
        return Result(*shared, "refused", (), "", str(found), case.refusal, case.refusal, seconds)
    (method,) = found.methods
    word, codes = method.verdict.word, method.verdict.codes
    if not case.codes:
        fired = [f"{finding.code} {finding.message}" for finding in method.findings if finding.is_issue]
        fine = word in WELL_WORDS[when] and not fired
        return Result(*shared, word, codes, "", "; ".join(fired), fine, True, seconds)
    first = next((finding for finding in method.findings if codes and finding.code == codes[0]), None)
    where, said = (first.where, first.message) if first else ("", "")
    named = word == "ill" and bool(codes) and codes[0] in case.codes
    return Result(*shared, word, codes, where, said, named, named and is_at(where, patient.where), seconds)


def is_at(where: str, places: Sequence[str]) -> bool:
    """Whether a module or parameter is one of those places, or a part of it; a fault without a place is anywhere."""
    above = [where.rsplit(".", i)[0] for i in range(where.count(".") + 1)]
    return not places or any(fnmatchcase(name, place) for name in above for place in places)
