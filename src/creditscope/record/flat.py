"""A snapshot laid flat: every number under one name for loggers, and a table of its taps for people."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from creditscope.text import count, number

if TYPE_CHECKING:
    from creditscope.record.schema import Facts, Snapshot

EXACT = 1 - 1e-5
"""Cosine of a watched model's credit above which it is the gradient itself, of which there is nothing to say."""


def name_numbers(snapshot: "Snapshot", facts: "Facts | None" = None) -> dict[str, float]:
    """Every number that was measured, by its path: "loss", "taps/3/g_norm", "weights/head.bias/exact_norm".

    Taps go by their number; weights and modules by their name in `facts`, without these by their number too.
    """
    found: dict[str, float] = {}
    for group, value in _items(snapshot):
        if isinstance(value, float):
            found[group] = value
        elif is_dataclass(value):
            names = _names(getattr(facts, group, ()))
            for measure, series in _items(value):
                if isinstance(series, float):
                    found[f"{group}/{measure}"] = series
                elif isinstance(series, tuple | list):
                    places = names if len(names) == len(series) else range(len(series))
                    numbers = zip(places, series, strict=True)
                    found |= {f"{group}/{place}/{measure}": float(v) for place, v in numbers if v is not None}
    return found


def _items(measures: Any) -> list[tuple[str, Any]]:
    return [(f.name, getattr(measures, f.name)) for f in fields(measures)]


def _names(known: Sequence[Any]) -> list[str]:
    """Of weights and modules, each once: "relu#2" is the second call of a module; none of what goes by number."""
    calls: Counter[str] = Counter()
    found = []
    for name in [one.name for one in known if hasattr(one, "name")]:
        calls[name] += 1
        found.append(name if calls[name] == 1 else f"{name}#{calls[name]}")
    return found


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
    }
    exact = snapshot.modules is not None and all(cos is None or cos > EXACT for cos in taps.cos)
    measured |= {} if exact else {"cos": (taps.cos, "+.2f"), "z": (taps.z, ".1f")}
    cells = {name: [number(value, form) for value in values] for name, (values, form) in measured.items()}
    said = {"loss": (snapshot.loss, ".3g"), "accuracy": (snapshot.accuracy, ".3f")}
    said |= {} if exact else {"Γ": (snapshot.gamma, "+.3f")}
    words = [f"{name} {number(value, form)}" for name, (value, form) in said.items() if value is not None]
    headline = " · ".join([snapshot.when, *words, count(snapshot.rows, "row")])
    return TapTable(headline, {"tap": [str(i) for i in range(len(rms))], **cells}, snapshot.notes)
