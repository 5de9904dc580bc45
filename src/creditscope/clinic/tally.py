"""How many faults were named and placed, and how many healthy nets were left in peace, by half."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from creditscope.clinic._case import HEALTHY, Half
from creditscope.clinic.examine import Result


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
    broken = [r for r in own if r.kind != HEALTHY]
    well = [r for r in own if r.kind == HEALTHY]
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
    return [
        Result(**{k: tuple(v) if k in lists else v for k, v in row.items()}, seconds=0.0) for row in json.loads(text)
    ]
