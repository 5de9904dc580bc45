"""How far each threshold could move, the others held, before any method's verdict word changes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from creditscope.auditing.checks import Check, MethodCheck, all_checks
from creditscope.auditing.judge import judge_check
from creditscope.auditing.methods import Method
from creditscope.auditing.thresholds import EVERY_RUN_CHECK, Thresholds, table
from creditscope.auditing.verdict import choose_word
from creditscope.errors import UnknownNameError

if TYPE_CHECKING:
    from creditscope.auditing.audit import Audit, MethodAudit

DECADES, PER_DECADE = 12, 20
"""How far and how finely the scan looks on either side; bisection then finds the edge."""
COUNTS = 100
"""How far it looks for whole numbers."""
BISECTIONS = 40
Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Range:
    """The values of one threshold over which every verdict word stays; None: any value on that side."""

    name: str
    checks: tuple[str, ...]
    value: float
    low: float | None
    high: float | None
    below: str = ""
    """What changes just below `low`."""
    above: str = ""
    """What changes just above `high`."""


@dataclass(frozen=True)
class Sensitivity:
    """One range per threshold."""

    ranges: tuple[Range, ...]

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    def __getitem__(self, name: str) -> Range:
        return {found.name: found for found in self.ranges}[name]

    def __str__(self) -> str:
        from creditscope.auditing.show import draw_sensitivity, render_plain

        return render_plain(lambda width: draw_sensitivity(self, width))

    def show(self) -> None:
        """Print the table to the terminal."""
        from creditscope.auditing.show import draw_sensitivity, show

        show(lambda width: draw_sensitivity(self, width))

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain data, one row each."""
        return [asdict(found) for found in self.ranges]

    def frame(self):
        """A pandas table, one row per threshold."""
        import pandas as pd

        return pd.DataFrame(self.to_dicts())


def find_ranges(audit: "Audit", names: Sequence[str]) -> Sensitivity:
    """Scan each threshold (those named, or all) up and down from its value; only checks that read it judge again."""
    rows = {row["name"]: row for row in table(audit.limits)}
    for name in names:
        if name not in rows:
            raise UnknownNameError("threshold", name, rows)
    checks, pairs = all_checks(), zip(audit.groups, audit.methods, strict=True)
    judged = [_Again(method, found, checks, audit.mute) for method, found in pairs]
    return Sensitivity(tuple(_find_range(audit, judged, rows[name]) for name in names or rows))


def _find_range(audit: "Audit", judged: Sequence["_Again"], row: dict[str, Any]) -> Range:
    def words(value: float) -> Words:
        limits = audit.limits.changed(**{row["name"]: value})
        return tuple(again.word(limits, row["checks"]) for again in judged)

    now = words(row["value"])
    low, below = _edge(words, row["value"], _steps_down(row))
    high, above = _edge(words, row["value"], _steps_up(row))
    return Range(
        name=row["name"],
        checks=row["checks"],
        value=row["value"],
        low=low,
        high=high,
        below=_changes(audit.methods, now, below),
        above=_changes(audit.methods, now, above),
    )


class _Again:
    """A method whose verdict word is reached again under other limits; findings that do not depend on them are kept."""

    def __init__(self, method: Method, found: "MethodAudit", checks: Sequence[Check], mute: Sequence[str]):
        self.method, self.checks, self.mute = method, checks, mute
        self.diverged = bool(found.verdict.diverged)
        self.findings = {finding.code: finding for finding in found.findings}

    def word(self, limits: Thresholds, codes: Sequence[str]) -> str:
        """The word when the checks of these codes (or, for a threshold about seeds, all of a run) are judged again."""
        about_seeds = EVERY_RUN_CHECK in codes
        findings = []
        for check in self.checks:
            if check.code in self.mute:
                findings.append(self.findings[check.code])
            elif check.code in codes or (about_seeds and not isinstance(check, MethodCheck)):
                findings.append(judge_check(check, self.method, limits))
            else:
                findings.append(self.findings[check.code])
        return choose_word(findings, diverged=self.diverged, not_judged=bool(self.method.not_judged))[0]


def _edge(words: Callable[[float], Words], value: float, steps: Iterator[float]) -> tuple[float | None, Words | None]:
    """The last value before the words change, and what they are then; (None, None) if they never do."""
    kept, before = value, words(value)
    for step in steps:
        if words(step) == before:
            kept = step
            continue
        changed = step
        for _ in range(BISECTIONS if not isinstance(step, int) else 0):
            middle = _between(kept, changed)
            if words(middle) == before:
                kept = middle
            else:
                changed = middle
        return kept, words(changed)
    return None, None


def _between(one: float, other: float) -> float:
    """The geometric mean, which finds an edge near zero as fast as one far from it."""
    return math.sqrt(one) * math.sqrt(other) if one > 0 and other > 0 else (one + other) / 2


def _steps_up(row: dict[str, Any]) -> Iterator[float]:
    value, kind = row["value"], row["kind"]
    if kind == "count":
        yield from range(int(value) + 1, int(value) + COUNTS)
    elif kind == "probability":
        yield from _odds(value, +1)
    else:
        top = 1.0 if kind == "share" else math.inf
        for factor in _factors():
            step = min((value or 10.0**-DECADES) * factor, top)
            if step > value:
                yield step
            if step == top:
                return


def _steps_down(row: dict[str, Any]) -> Iterator[float]:
    value, kind = row["value"], row["kind"]
    if kind == "count":
        yield from range(int(value) - 1, -1, -1)
    elif kind == "probability":
        yield from _odds(value, -1)
    elif value > 0:
        yield from (value / factor for factor in _factors())
        yield 0.0


def _odds(value: float, sign: int) -> Iterator[float]:
    """Probabilities whose odds grow or shrink evenly, as long as they are neither 0 nor 1."""
    for factor in _factors():
        odds = value / (1 - value) * factor**sign
        step = odds / (1 + odds)
        if 0 < step < 1:
            yield step


def _factors() -> Iterator[float]:
    return (10 ** (i / PER_DECADE) for i in range(1, DECADES * PER_DECADE + 1))


def _changes(methods: Sequence["MethodAudit"], before: Words, after: Words | None) -> str:
    """Which verdicts change, in words."""
    if after is None:
        return ""
    settings = list(dict.fromkeys(m.setting for m in methods))
    tasks = {setting: setting.split(" · ")[0] for setting in settings}
    names = tasks if len(set(tasks.values())) == len(settings) else {setting: setting for setting in settings}
    return "; ".join(
        f"{m.method}{f' ({names[m.setting]})' if len(settings) > 1 else ''}: {old} → {new}"
        for m, old, new in zip(methods, before, after, strict=True)
        if old != new
    )
