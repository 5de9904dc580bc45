"""Which setting gives most published numbers jointly: each number under all of them, on the same seeds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from creditscope.paper.reproduction._readings import Values, shared_seeds
from creditscope.paper.reproduction._settings import SETTINGS, Setting
from creditscope.paper.reproduction._shelf import Shelf
from creditscope.paper.reproduction.compare import Comparison, Published, compare
from creditscope.text import count


@dataclass(frozen=True)
class Row:
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


@dataclass(frozen=True)
class Tally:
    """What one setting makes of the numbers that are like for like."""

    setting: Setting
    inside: int
    answered: int
    joint: int
    """Inside, of those that every setting has an answer for."""
    far: int
    """Of those inside, accuracies more than 1.5 pp away: inside because the interval is wide."""


@dataclass(frozen=True)
class Joint:
    """All settings over the same numbers."""

    rows: tuple[Row, ...]
    """Those that are like for like."""
    shared: int
    """That every setting which was run has an answer for."""
    tallies: tuple[Tally, ...]
    """Of the settings that were run."""

    @property
    def best(self) -> list[Tally]:
        """Those that put most of the shared numbers inside."""
        most = max((one.joint for one in self.tallies), default=0)
        return [one for one in self.tallies if one.joint == most]

    @property
    def nowhere(self) -> list[Published]:
        """Numbers that are inside under no setting, as far as there is an answer."""
        return [row.published for row in self.rows if row.answers and not any(row.answers.values())]

    @property
    def silent(self) -> list[Published]:
        """Numbers without an answer under any."""
        return [row.published for row in self.rows if not row.answers]


def compare_settings(published: Published, shelf: Shelf) -> Row:
    """A number under every setting, at equal n."""
    readings = {s.name: published.readings.get(s.name) for s in SETTINGS}
    values = {name: reading(shelf) if reading else Values({}) for name, reading in readings.items()}
    seeds, runs = shared_seeds(values.values()), [found.seeds for found in values.values() if found.seeds]
    run = frozenset(set.intersection(*runs) if runs else ())
    under = {name: compare(published, found.on(seeds, run)) for name, found in values.items()}
    return Row(published, seeds, run, under)


def join(rows: Sequence[Row]) -> Joint:
    """Every setting that was run, over the numbers that are like for like; a BP run is no run of a setting."""
    kept = tuple(row for row in rows if not row.published.apart)
    run = {name for row in kept if row.published.depends for name in row.answers}
    shared = [row for row in kept if run <= row.answers.keys()] if run else []
    tallies = [_count(setting, kept, shared) for setting in SETTINGS if setting.name in run]
    return Joint(kept, len(shared), tuple(tallies))


def _count(setting: Setting, rows: Sequence[Row], shared: Collection[Row]) -> Tally:
    own = [row for row in rows if setting.name in row.answers]
    inside = [row for row in own if row.answers[setting.name]]
    joint, far = (sum(row.answers[setting.name] for row in shared), sum(r.under[setting.name].far for r in inside))
    return Tally(setting, len(inside), len(own), joint, far)


def lead_lines(found: Joint, published: int) -> list[str]:
    """How many numbers every setting puts inside, and which of them most."""
    same = sum(not row.published.depends for row in found.rows)
    lines = [
        f"{len(found.rows)} of {count(published, 'published number')} can be compared like for like; {same} of these "
        f"are the same under every setting."
    ]
    for one in found.tallies:
        joint = f", {one.joint} of the {found.shared} that all settings have runs for"
        lines.append(f"{one.setting.title}: {one.inside} of {one.answered} inside{joint}.")
    if found.tallies:
        titles = " and ".join(one.setting.title for one in found.best)
        lines.append(f"Most of the numbers jointly: {titles}, {found.best[0].joint} of {found.shared}.")
    lines.append(
        f"{count(len(found.nowhere), 'number')} inside under no setting, {len(found.silent)} without an answer."
    )
    return lines
