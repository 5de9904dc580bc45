"""What was said of every case, and how many faults were named and placed, by half; needs no torch."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Half = Literal["setting", "reporting"]
When = Literal["start", "trained"]
HEALTHY, YOUNG = "healthy", "healthy, not learnt much"
"""Kinds of net without fault; of the second, little can be learnt, or was yet."""


@dataclass(frozen=True)
class Result:
    """What was expected of a case, and what was said."""

    kind: str
    architecture: str
    half: Half
    when: When
    expected: tuple[str, ...]
    """Codes; none of a healthy net."""
    places: tuple[str, ...]
    """Modules, as globs; none where the fault has no place."""
    word: str
    """Of the verdict; "refused" where the snapshot was."""
    codes: tuple[str, ...]
    """Issues, in their order."""
    where: str
    """The module that the first issue names."""
    said: str
    """The first issue's message, or the refusal."""
    named: bool
    """Of a fault: the first code is the one expected. Of a healthy net: nothing fires."""
    placed: bool
    """The module is one of those expected."""
    seconds: float

    @property
    def name(self) -> str:
        """That of the case."""
        return f"{self.kind}, {self.architecture}"

    @property
    def healthy(self) -> bool:
        """Whether nothing was done to it."""
        return not self.expected

    @property
    def right(self) -> bool:
        """Nothing is to be mended."""
        return self.named and self.placed

    def to_dict(self) -> dict[str, Any]:
        """As JSON, without the time, which differs from run to run."""
        return {name: value for name, value in asdict(self).items() if name != "seconds"}


@dataclass(frozen=True)
class Count:
    """Of one half."""

    half: Half
    faults: int
    named: int
    """The fault came first."""
    placeable: int
    """Faults that have a place."""
    placed: int
    """Those named, with the right module."""
    healthy: int
    """Examinations of healthy nets: each at the start and trained."""
    alarms: int

    @property
    def fine(self) -> bool:
        """At least 19 of 20 faults named, and no false alarm."""
        return self.named >= 0.95 * self.faults and not self.alarms

    @property
    def line(self) -> str:
        """In words."""
        return (
            f"{self.half} half: {self.named} of {self.faults} faults named first, "
            f"the right module for {self.placed} of the {self.placeable} that have one; "
            f"{self.alarms} false alarms in {self.healthy} examinations of healthy nets"
        )


def tally(results: Iterable[Result]) -> list[Count]:
    """A count for each half that was examined."""
    halves: dict[Half, list[Result]] = {}
    for result in results:
        halves.setdefault(result.half, []).append(result)
    return [_count(half, own) for half, own in sorted(halves.items(), reverse=True)]


def _count(half: Half, own: Sequence[Result]) -> Count:
    broken = [r for r in own if not r.healthy]
    well = [r for r in own if r.healthy]
    placed = [r for r in broken if r.places]
    return Count(
        half,
        len(broken),
        sum(r.named for r in broken),
        len(placed),
        sum(r.right for r in placed),
        len(well),
        sum(not r.named for r in well),
    )


def to_json(results: Sequence[Result]) -> str:
    """A line for each result, so that two files can be compared."""
    rows = ",\n".join(json.dumps(result.to_dict(), ensure_ascii=False) for result in results)
    return f"[\n{rows}\n]\n"


def from_json(text: str) -> list[Result]:
    """What `to_json` wrote."""
    lists = ("expected", "places", "codes")

    def whole(row: dict[str, Any]) -> dict[str, Any]:
        return row | {name: tuple(row[name]) for name in lists}

    return [Result(**whole(row), seconds=0.0) for row in json.loads(text)]
