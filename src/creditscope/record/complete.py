"""What the end of a run is measured for by now, and a record from before does not hold: it is drawn, but not kept."""

from typing import TYPE_CHECKING

from creditscope.record.schema import DESCENT_TURNS

if TYPE_CHECKING:
    from creditscope.record.store import Record

AT_THE_END = ("null_q99", "stage_cos", "rewind")
"""Per-tap fields of a last snapshot at any tier; what could not be measured is a series of None, and not empty."""


def lacks(record: "Record") -> tuple[str, ...]:
    """Fields that its tier asks for at the end of a run and the record lacks; none of one that diverged.

    Of frozen blocks only the accuracy is asked at tier quick.
    """
    spec = record.spec
    if spec is None or record.provenance.status != "complete" or (spec.frozen and spec.tier == "quick"):
        return ()
    last = record.last
    found = tuple(name for name in AT_THE_END if not getattr(last.taps, name))
    measured = spec.tier != "quick" and any(value is not None for value in last.taps.descent)
    return (*found, "descent_turns") if measured and last.descent_turns < DESCENT_TURNS else found
