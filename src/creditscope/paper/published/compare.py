"""Is a published number what we measure? One definition, that of `method.md`, under every setting at equal n."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from creditscope.auditing.stats import CONFIDENCE
from creditscope.paper.published.numbers import PUBLISHED, SETTINGS, Conventions, Published
from creditscope.paper.published.readings import NEVER, RunFinder, Values, shared
from creditscope.text import count

CLOSE = 0.015
"""Distance of accuracies that is said beside: 1.5 pp."""


@dataclass(frozen=True)
class Comparison:
    """One reading beside a published number. Bounds are on the scale of the quantity itself."""

    values: Values
    mean: float | None = None
    half: float | None = None
    """Half width of the 95 % t interval of the mean, on the scale of the entry."""
    low: float | None = None
    high: float | None = None
    """The prediction interval."""
    inside: bool | None = None
    """None: it cannot be said."""
    close: bool | None = None
    """Accuracies: within 1.5 pp."""

    @property
    def n(self) -> int:
        return len(self.values.by_seed)

    @property
    def far(self) -> bool:
        """Inside, but an accuracy more than 1.5 pp away: the interval is wide."""
        return self.inside is True and self.close is False


def compare(published: Published, values: Values) -> Comparison:
    """The interval, and whether the published number is in it."""
    never = NEVER in values.lacking.values()
    if not values.by_seed:
        return Comparison(values, inside=False if never else None)
    if published.kind == "claim":
        return Comparison(values, inside=all(values.numbers))
    log = published.scale == "log10"
    if log and min(values.numbers) <= 0:  # a size of 0 has no logarithm
        return Comparison(values, inside=False)
    numbers = [math.log10(x) for x in values.numbers] if log else values.numbers
    mean, n = float(np.mean(numbers)), len(numbers)
    said_low, said_high = published.bounds()
    away = max(said_low - mean, mean - said_high, 0.0) if published.accuracy else None
    close = None if away is None else away <= CLOSE
    if n < 2:
        return Comparison(values, _back(mean, log), close=close)
    sd = float(np.std(numbers, ddof=1))
    reach, half = _reach(sd, n, published), _t(n - 1) * sd / math.sqrt(n)
    low, high = _back(mean - reach, log), _back(mean + reach, log)
    inside = low <= said_high and said_low <= high and not never
    return Comparison(values, _back(mean, log), half, low, high, inside, close)


def _reach(sd: float, n: int, published: Published) -> float:
    """Half width of the prediction interval."""
    m, theirs = published.seeds, published.spread
    if theirs is None or m < 2:
        return _t(n - 1) * sd * math.sqrt(1 / n + 1 / m)
    ours, others = sd * sd / n, theirs * theirs / m
    if ours + others == 0:
        return 0.0
    freedom = (ours + others) ** 2 / (ours * ours / (n - 1) + others * others / (m - 1))
    return _t(freedom) * math.sqrt(ours + others)


def _t(freedom: float) -> float:
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def _back(value: float, log: bool) -> float:
    return value if not log else float(10.0**value) if value < 300 else math.inf


@dataclass(frozen=True)
class NumberUnderAll:
    """A number under every setting, on the seeds on which all that have runs of it have an answer.

    So none is inside merely because it has fewer seeds and a wider interval.
    """

    published: Published
    seeds: frozenset[int]
    run: frozenset[int]
    """The seeds that all have runs of: those that diverged or were not measured are named, and not compared."""
    under: dict[str, Comparison]

    @property
    def answers(self) -> dict[str, bool]:
        """Inside or not, by the settings that can say."""
        return {name: found.inside for name, found in self.under.items() if found.inside is not None}


def compare_settings(published: Published, finder: RunFinder) -> NumberUnderAll:
    """A number under every setting, at equal n."""
    readings = {s.name: published.readings.get(s.name) for s in SETTINGS}
    values = {name: reading(finder) if reading else Values({}) for name, reading in readings.items()}
    seeds, run = (shared(getattr(found, name) for found in values.values()) for name in ("answered", "seeds"))
    under = {name: compare(published, found.on(seeds, run)) for name, found in values.items()}
    return NumberUnderAll(published, seeds, run, under)


@dataclass(frozen=True)
class Tally:
    """What one setting makes of the numbers that are like for like."""

    setting: Conventions
    inside: int
    answered: int
    joint: int
    """Inside, of those that every setting has an answer for."""
    far: int
    """Of those inside, accuracies more than 1.5 pp away: inside because the interval is wide."""


@dataclass(frozen=True)
class Tallies:
    """All settings over the same numbers."""

    numbers: tuple[NumberUnderAll, ...]
    """Those that are like for like."""
    shared: int
    """That every setting which was run has an answer for."""
    by_setting: tuple[Tally, ...]
    """Of the settings that were run."""

    @property
    def best(self) -> list[Tally]:
        """Those that put most of the shared numbers inside."""
        most = max((one.joint for one in self.by_setting), default=0)
        return [one for one in self.by_setting if one.joint == most]

    @property
    def nowhere(self) -> list[Published]:
        """Numbers that are inside under no setting, as far as there is an answer."""
        return [one.published for one in self.numbers if one.answers and not any(one.answers.values())]

    @property
    def silent(self) -> list[Published]:
        """Numbers without an answer under any."""
        return [one.published for one in self.numbers if not one.answers]

    def lines(self) -> list[str]:
        """How many numbers every setting puts inside, and which of them most."""
        same = sum(not one.published.depends for one in self.numbers)
        lines = [
            f"{len(self.numbers)} of {count(len(PUBLISHED), 'published number')} can be compared like for like; {same} "
            f"of these are the same under every setting."
        ]
        for one in self.by_setting:
            joint = f", {one.joint} of the {self.shared} that all settings have runs for"
            lines.append(f"{one.setting.title}: {one.inside} of {one.answered} inside{joint}.")
        if self.by_setting:
            titles = " and ".join(one.setting.title for one in self.best)
            lines.append(f"Most of the numbers jointly: {titles}, {self.best[0].joint} of {self.shared}.")
        nowhere, silent = count(len(self.nowhere), "number"), len(self.silent)
        return [*lines, f"{nowhere} inside under no setting, {silent} without an answer."]


def tally(numbers: Sequence[NumberUnderAll]) -> Tallies:
    """Every setting that was run, over the numbers that are like for like; a BP run is no run of a setting."""
    kept = tuple(one for one in numbers if not one.published.apart)
    run = {name for one in kept if one.published.depends for name in one.answers}
    shared = [one for one in kept if run <= one.answers.keys()] if run else []
    return Tallies(kept, len(shared), tuple(_count(s, kept, shared) for s in SETTINGS if s.name in run))


def _count(setting: Conventions, kept: Sequence[NumberUnderAll], shared: Collection[NumberUnderAll]) -> Tally:
    own = [one for one in kept if setting.name in one.answers]
    inside = [one for one in own if one.answers[setting.name]]
    joint = sum(one.answers[setting.name] for one in shared)
    return Tally(setting, len(inside), len(own), joint, sum(one.under[setting.name].far for one in inside))
