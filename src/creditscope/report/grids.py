"""Per method: every quantity of the layers by epoch, tap and seed, as the script and the heatmaps read it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from creditscope.auditing.methods import Method
from creditscope.auditing.stats import NULL_SDS
from creditscope.auditing.tap_credit import null_of_mean
from creditscope.record import Record, Snapshot
from creditscope.report.numbers import four, mean, pick

MANY_METHODS = 100
"""A page of more methods has fewer epochs of each, so that it can still be mailed."""


@dataclass(frozen=True)
class Quantity:
    """Something with a value per tap."""

    name: str
    """Of the field of a record."""
    symbol: str
    title: str
    kind: Literal["signed", "log"]


QUANTITIES = (
    Quantity("cos", "cos", "cosine of credit and gradient", "signed"),
    Quantity("g_norm", "‖g‖", "gradient norm, median per sample", "log"),
    Quantity("h_norm", "‖h‖", "state norm, median per sample", "log"),
    Quantity("rho", "ρ", "correlation of credit with the change of the loss", "signed"),
)


def most_columns(methods: int) -> int:
    """Epochs of each heatmap on a page of so many methods."""
    return 24 if methods <= MANY_METHODS else 9


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One method. Lists run over epochs, then taps, then (by_seed) seeds."""

    epochs: tuple[int, ...]
    taps: tuple[str, ...]
    exact: tuple[int, ...]
    seeds: tuple[int, ...]
    by_seed: dict[str, list[float | None]]
    means: dict[str, list[float | None]]
    in_null: list[bool]
    """Whether a cell's mean cosine is not told from the null of the mean; exact taps never are."""
    extras: dict[str, list[float | None]]
    """rows_used (fewest over seeds), rows_no_gradient (most), g_noise (worst), null_sd (of the mean; none at exact)."""

    @property
    def all_exact(self) -> bool:
        """Whether every tap is handed the exact gradient, so that the cosine is 1 by construction."""
        return len(self.exact) == len(self.taps)

    def epochs_with(self, name: str) -> list[int]:
        """At which some tap has a value of a quantity."""
        rows, means = len(self.taps), self.means.get(name, [])
        return [e for i, e in enumerate(self.epochs) if any(v is not None for v in means[i * rows : (i + 1) * rows])]

    def to_dict(self, name: str, setting: int) -> dict[str, Any]:
        """For the script: a list per epoch, four significant digits; a constant list is one number."""
        return {
            "name": name,
            "setting": setting,
            "epochs": self.epochs,
            "taps": self.taps,
            "exact": self.exact,
            "seeds": self.seeds,
            "values": {q: self._by_epoch(values) for q, values in self.by_seed.items()},
            **{name: self._by_epoch(values) for name, values in self.extras.items()},
        }

    def _by_epoch(self, values: Sequence[float | None]) -> list[Any]:
        step = max(len(values) // max(len(self.epochs), 1), 1)
        return [_short([four(v) for v in values[i : i + step]]) for i in range(0, len(values), step)]


def choose_epochs(methods: Sequence[Method], most: int) -> tuple[int, ...]:
    """Columns that the methods of a setting share: epochs that all of them have, where those are enough to fill half
    of the columns; else epochs that half of the methods have, and where each of them ends."""
    found = [shared_epochs(_drawn(method)) for method in methods]
    counts = Counter(epoch for epochs in found for epoch in epochs)
    ends = {epochs[-1] for epochs in found if epochs}
    common = [e for e, count in counts.items() if e in ends or count == len(methods)]
    if 2 * len(common) < most:
        common = [e for e, count in counts.items() if e in ends or 2 * count >= len(methods)]
    return pick(sorted(common), most)


def make_grid(method: Method, epochs: Sequence[int]) -> Grid:
    """Of the seeds that did not diverge (of all, if every one did); an epoch that one of them lacks has no values.

    A method that has none of these epochs has its own.
    """
    records = _drawn(method)
    seeds = [seed for seed, record in method.runs.items() if any(record is r for r in records)]
    shared = set(shared_epochs(records))
    if shared.isdisjoint(epochs):
        epochs = pick(sorted(shared), len(epochs))
    by_epoch = [{s.epoch: s for s in record.snapshots} for record in records]
    columns = [[found[e] if e in shared else None for found in by_epoch] for e in epochs]
    taps = method.facts.taps
    by_seed = {q.name: _values(columns, len(taps), q.name) for q in QUANTITIES}
    by_seed = {name: values for name, values in by_seed.items() if any(v is not None for v in values)}
    means = {
        q.name: _over_seeds(by_seed[q.name], len(seeds), lambda v, q=q: mean(v, geometric=q.kind == "log"))
        for q in QUANTITIES
        if q.name in by_seed
    }
    extras = {name: _over_seeds(_values(columns, len(taps), name), len(seeds), over) for name, over in EXTRAS.items()}
    exact = method.facts.exact_taps
    extras["null_sd"] = [None if i % len(taps) in exact else sd for i, sd in enumerate(extras["null_sd"])]
    return Grid(
        epochs=tuple(epochs),
        taps=taps,
        exact=exact,
        seeds=tuple(seeds),
        by_seed=by_seed,
        means=means,
        in_null=_in_null(means.get("cos", []), extras["null_sd"]),
        extras=extras,
    )


def shared_epochs(records: Sequence[Record]) -> list[int]:
    """Epochs at which every record has a snapshot."""
    found = [{s.epoch for s in r.snapshots} for r in records]
    return sorted(set.intersection(*found))


def _drawn(method: Method) -> list[Record]:
    return method.whole or list(method.runs.values())


def _values(columns: Sequence[Sequence[Snapshot | None]], taps: int, name: str) -> list[float | None]:
    """Flat over epochs, taps and seeds; what a tier does not measure, and where there is no snapshot, is None."""
    found: list[float | None] = []
    for column in columns:
        series = [(getattr(snapshot.taps, name) if snapshot else ()) or (None,) * taps for snapshot in column]
        for tap in range(taps):
            found += [values[tap] for values in series]
    return found


Known = Sequence[float | None]


def _over_seeds(values: Known, seeds: int, over: Callable[[Known], float | None]) -> list[float | None]:
    return [over(values[i : i + seeds]) for i in range(0, len(values), seeds)]


def _least(values: Known) -> float | None:
    return min((v for v in values if v is not None), default=None)


def _most(values: Known) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _null(values: Known) -> float | None:
    known = [v for v in values if v is not None]
    return null_of_mean(known) if known else None


EXTRAS: dict[str, Callable[[Known], float | None]] = {
    "rows_used": _least,
    "rows_no_gradient": _most,
    "g_noise": _most,
    "null_sd": _null,
}


def _in_null(cos: Known, null_sd: Known) -> list[bool]:
    pairs = zip(cos, null_sd, strict=False)
    return [value is not None and sd is not None and abs(value) < NULL_SDS * sd for value, sd in pairs]


def _short(values: list[float | None]) -> list[float | None] | float | None:
    return values[0] if len(set(values)) == 1 else values
