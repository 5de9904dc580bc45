"""What is drawn: one line per method, with its runs, its name and its look."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from creditscope.auditing.methods import Method, group_methods
from creditscope.errors import CreditscopeError
from creditscope.plots._quantities import of_taps
from creditscope.plots._style import as_drawn, text_width
from creditscope.record import Facts, Record
from creditscope.rule_styles import Look, rule_looks
from creditscope.text import span

DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
"""Of the methods of one rule, the one with the shortest name first."""
SHADES = (0.0, -0.45, 0.4, -0.22, 0.2)
"""How much black (below 0) or white is mixed into the rule's colour, likewise."""


@dataclass(frozen=True)
class Line:
    """One method; the look's label is the name that is written."""

    method: Method
    look: Look
    dashes: Any

    @property
    def facts(self) -> Facts:
        return self.method.facts

    @property
    def whole(self) -> list[Record]:
        return self.method.whole

    def per_tap(self, quantity: str) -> np.ndarray:
        """At the end of every run that did not diverge, (seeds, taps)."""
        found = [of_taps(r.facts, r.last, quantity) for r in self.whole]
        return np.array(found, dtype=float).reshape(len(found), len(self.facts.taps))

    def per_run(self, quantity: str) -> np.ndarray:
        """The same of a number of the whole net, (seeds,)."""
        return np.array([getattr(r.last, quantity) for r in self.whole], dtype=float)


def gather(source: Any) -> list[Record]:
    """The records of a list, of runs or of a scope that have something to draw."""
    found = getattr(source, "records", None)
    if found is None:
        found = getattr(source, "record", source)
    records = [found] if isinstance(found, Record) else list(found) if isinstance(found, Iterable) else [found]
    if not all(isinstance(r, Record) for r in records):
        raise CreditscopeError(
            f"Expected records, runs or a scope to draw, but got {type(source).__name__}. Load records by "
            "creditscope.load_records(folder)."
        )
    kept = [r for r in records if r.snapshots and (r.spec is None or r.finished)]
    if not kept:
        left_out = f" among {len(records)} that did not finish" if records else ""
        raise CreditscopeError(
            f"Expected at least one finished record to draw, but got none{left_out}. Train runs first "
            "(creditscope.run), or load others."
        )
    return kept


def lines_of(source: Any) -> list[Line]:
    """A line per method, backprop first; frozen runs and rungs of the depth ladder are none."""
    methods = group_methods(gather(source))
    if not methods:
        raise CreditscopeError(
            "Expected a run whose blocks are all trained, but got frozen baselines or rungs of a depth ladder only. "
            "Add runs without frozen and train_last."
        )
    rules, names = [m.spec.rule if m.spec else m.facts.rule.name for m in methods], _names(methods)
    looks, lines = rule_looks(dict.fromkeys(rules), labels={}), []
    for method, rule, name in zip(methods, rules, names, strict=True):
        rivals = sorted((other for other, its in zip(names, rules, strict=True) if its == rule), key=len)
        place, look = rivals.index(name), looks[rule]
        colour = _shade(look.colour, SHADES[place % len(SHADES)])
        lines.append(Line(method, replace(look, label=as_drawn(name), colour=colour), DASHES[place % len(DASHES)]))
    return lines


def name_room(lines: Sequence[Line]) -> float:
    """Inches that the longest name needs beside a panel."""
    return max(text_width(line.look.label) for line in lines) + 0.2


def say_seeds(lines: Sequence[Line], *, marks: str) -> str:
    """What the marks are, of how many seeds; or that there is one run."""
    counts = [len(line.whole) for line in lines if line.whole]
    if max(counts, default=1) == 1:
        return "one run each" if len(lines) > 1 else "one run"
    return f"{marks} {span(min(counts), max(counts))} seeds"


def say_diverged(lines: Sequence[Line]) -> str:
    """Which methods lack runs because they diverged, in words."""
    lost = [(line.look.label, len(line.method.runs) - len(line.whole), len(line.method.runs)) for line in lines]
    said = [f"{name} ({gone} of {runs})" for name, gone, runs in lost if gone]
    return f"diverged, not drawn: {', '.join(said)}" if said else ""


def say_missing(lines: Sequence[Line], drawn: Sequence[Line]) -> str:
    """Which methods have no such number, in words; those that diverged are said elsewhere."""
    names = [line.look.label for line in lines if line.whole and line not in drawn]
    return f"not measured: {', '.join(names)}" if names else ""


def _names(methods: Sequence[Method]) -> list[str]:
    """Labels, with what tells their settings apart if there are several, and numbered if they are still the same."""
    parts = [m.setting.split(" · ") for m in methods]
    shared = set(parts[0]).intersection(*parts)
    names = [", ".join([m.label, *(p for p in own if p not in shared)]) for m, own in zip(methods, parts, strict=True)]
    return [f"{name} ({names[:i].count(name) + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _shade(colour: str, share: float) -> str:
    """Mixed with so much white, or black below 0."""
    other = 1.0 if share > 0 else 0.0
    red, green, blue = ((1 - abs(share)) * c + abs(share) * other for c in to_rgb(colour))
    return to_hex((red, green, blue))
