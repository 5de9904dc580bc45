"""A snapshot laid flat: every number under one name for loggers, and a table of its taps for people."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from creditscope.text import count, number

if TYPE_CHECKING:
    from creditscope.record.schema import Facts, Snapshot


def name_numbers(snapshot: "Snapshot", facts: "Facts | None" = None) -> dict[str, float]:
    """Every number that was measured, by its path: "loss", "taps/3/g_norm", "weights/head.bias/exact_norm".

    Taps go by their number; weights and modules by their name in `facts`, without these by their number too.
    """
    found: dict[str, float] = {}
    for name, value in _items(snapshot):
        if isinstance(value, float):
            found[name] = value
        elif is_dataclass(value):
            for measure, series in _items(value):
                if isinstance(series, Sequence) and not isinstance(series, str):
                    places = _places(name, facts, len(series))
                    numbers = zip(places, series, strict=True)
                    found |= {f"{name}/{place}/{measure}": float(v) for place, v in numbers if _is_number(v)}
                elif isinstance(series, float):
                    found[f"{name}/{measure}"] = series
    return found


def _items(measures: Any) -> list[tuple[str, Any]]:
    return [(f.name, getattr(measures, f.name)) for f in fields(measures)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _places(group: str, facts: "Facts | None", length: int) -> Sequence[Any]:
    """Names of a list's places: those of the facts' list of that name, if these have names."""
    known = getattr(facts, group, ())
    named = len(known) == length and all(hasattr(one, "name") for one in known)
    return [one.name for one in known] if named else range(length)


class TapTable(NamedTuple):
    """A snapshot for people."""

    headline: str
    columns: dict[str, list[str]]
    """Cells by heading, one a tap; a dash stands for what is not there."""
    notes: tuple[str, ...]

    def __str__(self) -> str:
        table = [[heading, *cells] for heading, cells in self.columns.items()]
        padded = [[cell.rjust(max(map(len, column))) for cell in column] for column in table]
        return "\n".join([self.headline, *map("  ".join, zip(*padded, strict=True)), *self.notes])


def tabulate_taps(snapshot: "Snapshot") -> TapTable:
    """A row per tap; growth is RMS(h_l) / RMS(h_{l−1})."""
    taps, rms = snapshot.taps, snapshot.taps.h_rms
    growth = [None, *(above / below if above is not None and below else None for below, above in pairwise(rms))]
    measured = {
        "‖h‖": (taps.h_norm, ".3g"),
        "growth": (growth, ".2f"),
        "‖g‖": (taps.g_norm, ".1e"),
        "noise": (taps.g_noise, ".0e"),
        "cos": (taps.cos, "+.2f"),
        "z": (taps.z, ".1f"),
    }
    cells = {name: [number(value, form) for value in values] for name, (values, form) in measured.items()}
    said = {"loss": (snapshot.loss, ".3g"), "accuracy": (snapshot.accuracy, ".3f"), "Γ": (snapshot.gamma, "+.3f")}
    words = [f"{name} {number(value, form)}" for name, (value, form) in said.items() if value is not None]
    headline = " · ".join([f"epoch {snapshot.epoch}", *words, count(snapshot.rows, "row")])
    return TapTable(headline, {"tap": [str(i) for i in range(len(rms))], **cells}, snapshot.notes)
