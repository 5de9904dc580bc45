"""How far each threshold could move, the others held, before any method's verdict word changes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from creditscope.auditing.checks import MethodCheck, all_checks, checks_for
from creditscope.auditing.columns import RANGES, ShownRows
from creditscope.auditing.judge import judge_check
from creditscope.auditing.methods import Method, read_methods
from creditscope.auditing.thresholds import EVERY_RUN_CHECK, Thresholds, table
from creditscope.auditing.verdict import choose_network_word, choose_word
from creditscope.errors import UnknownNameError

if TYPE_CHECKING:
    from creditscope.auditing.audit import Audit, MethodAudit

DECADES, PER_DECADE = 12, 20
"""How far and how finely the scan looks on either side; bisection then finds the edge."""
COUNTS = 100
"""How far it looks for whole numbers."""
BISECTIONS = 40
ABOUT = (
    "no method's verdict word changes while the threshold stays between the two, the others held; any: no change found "
    f"on that side, {DECADES} decades away or as far as the threshold may go (whole numbers: {COUNTS})"
)
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
class Sensitivity(ShownRows):
    """One range per threshold."""

    rows: tuple[Range, ...]

    def __getitem__(self, name: str) -> Range:
        return {found.name: found for found in self.rows}[name]

    def draw(self, width: int):
        """From where to where each threshold may lie, and what changes beyond."""
        from rich.console import Group

        from creditscope.auditing.printing import WIDE, flowing_table, note

        columns = [column for column in RANGES.values() if width >= WIDE or column.name != "checks"]
        return Group(flowing_table(columns, self), note(ABOUT))


def find_ranges(audit: "Audit", names: Sequence[str]) -> Sensitivity:
    """Scan each threshold (those named, or all) up and down from its value; only checks that read it judge again."""
    rows = {row["name"]: row for row in table(audit.limits)}
    for name in names:
        if name not in rows:
            raise UnknownNameError("threshold", name, rows)
    audit = replace(audit, groups=tuple(read_methods(audit.groups)))  # judged again and again
    return Sensitivity(tuple(_find_range(audit, rows[name]) for name in names or rows))


def words_under(audit: "Audit", name: str) -> Callable[[float], Words]:
    """Every method's verdict word by the value of one threshold, the others held."""
    row, checks = {row["name"]: row for row in table(audit.limits)}[name], all_checks()
    every_run = EVERY_RUN_CHECK in row["checks"]  # one about seeds is for all checks of runs
    readers = [c for c in checks if c.code in row["checks"] or (every_run and not isinstance(c, MethodCheck))]
    judged_again = {c.code for c in readers if c.code not in audit.mute}

    def words(value: float) -> Words:
        limits = audit.limits.changed(**{name: value})
        return tuple(word(*pair, limits) for pair in zip(audit.groups, audit.methods, strict=True))

    def word(method: Method, found: "MethodAudit", limits: Thresholds) -> str:
        pairs = zip(checks_for(method.facts, checks), found.findings, strict=True)
        findings = [judge_check(c, method, limits) if c.code in judged_again else f for c, f in pairs]
        choose = choose_network_word if method.facts.is_network else choose_word
        return choose(findings, diverged=bool(found.verdict.diverged), not_judged=bool(method.not_judged))[0]

    return words


def half_and_double(row: dict[str, Any]) -> tuple[float, float]:
    """Of a threshold; of a probability by its odds, of a whole number one less and one more.

    >>> half_and_double({"kind": "share", "value": 0.05}), half_and_double({"kind": "count", "value": 3})
    ((0.025, 0.1), (2, 4))
    """
    value = row["value"]
    if row["kind"] == "count":
        return value - 1, value + 1
    if row["kind"] == "probability":
        odds = value / (1 - value)
        return odds / (2 + odds), 2 * odds / (1 + 2 * odds)
    return value / 2, min(2 * value, 1.0) if row["kind"] == "share" else 2 * value


def _find_range(audit: "Audit", row: dict[str, Any]) -> Range:
    words = words_under(audit, row["name"])
    now = words(row["value"])
    (low, below), (high, above) = (_edge(words, row["value"], _steps(row, sign)) for sign in (-1, +1))
    said = {"below": _changes(audit.methods, now, below), "above": _changes(audit.methods, now, above)}
    return Range(name=row["name"], checks=row["checks"], value=row["value"], low=low, high=high, **said)


def _edge(words: Callable[[float], Words], value: float, steps: Iterator[float]) -> tuple[float | None, Words | None]:
    """The last value before the words change, and what they are then; (None, None) if they never do."""
    kept, before = value, words(value)
    for step in steps:
        if words(step) == before:
            kept = step
            continue
        changed = step
        for _ in range(BISECTIONS if not isinstance(step, int) else 0):
            positive = kept > 0 and changed > 0  # a geometric mean finds an edge near zero as fast as one far from it
            middle = math.sqrt(kept) * math.sqrt(changed) if positive else (kept + changed) / 2
            if words(middle) == before:
                kept = middle
            else:
                changed = middle
        return kept, words(changed)
    return None, None


def _steps(row: dict[str, Any], sign: int) -> Iterator[float]:
    """Values to try, away from the threshold's own: whole numbers, even steps of the odds, or of the logarithm."""
    value, kind = row["value"], row["kind"]
    if kind == "count":
        yield from range(int(value) + sign, int(value) + COUNTS if sign > 0 else -1, sign)
        return
    factors = [10 ** (i / PER_DECADE) for i in range(1, DECADES * PER_DECADE + 1)]
    if kind == "probability":
        odds = [value / (1 - value) * factor**sign for factor in factors]
        yield from (step for o in odds if 0 < (step := o / (1 + o)) < 1)
    elif sign < 0:
        yield from ([value / factor for factor in factors] + [0.0]) * (value > 0)
    else:
        top = 1.0 if kind == "share" else math.inf
        steps = [min((value or 10.0**-DECADES) * factor, top) for factor in factors]
        yield from dict.fromkeys(step for step in steps if step > value)


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
