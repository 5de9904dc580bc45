"""Per method: every quantity of the layers over seeds, epochs and taps, as the heatmaps and the script read it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from creditscope.auditing.methods import Method
from creditscope.auditing.stats import NULL_SDS
from creditscope.plots._quantities import is_size, mean_sd, of_taps, take_log
from creditscope.record import Record

SYMBOLS = {"cos": "cos", "g_norm": "‖g‖", "h_norm": "‖h‖", "rho": "ρ"}
"""The quantities that are drawn, in their order, and what stands above a heatmap."""
DIGITS = 4
"""Significant digits of the numbers that the script looks up."""


@dataclass(frozen=True, kw_only=True)
class LayerHistory:
    """One method. Arrays run over epochs and taps, `by_seed` over seeds before; NaN stands for what is not known."""

    epochs: tuple[int, ...]
    taps: tuple[str, ...]
    exact: tuple[int, ...]
    seeds: tuple[int, ...]
    by_seed: dict[str, np.ndarray]
    means: dict[str, np.ndarray]
    in_null: np.ndarray
    """Whether a cell's mean cosine is not told from the null of the mean; exact taps never are."""
    extras: dict[str, np.ndarray]
    """rows_used (fewest over seeds), rows_no_gradient (most), g_noise (worst), null_sd (of the mean; none at exact)."""

    def epochs_with(self, quantity: str) -> list[int]:
        """At which some tap has a value."""
        means = self.means.get(quantity, np.full((len(self.epochs), 1), np.nan))
        return [epoch for epoch, row in zip(self.epochs, means, strict=True) if not np.isnan(row).all()]

    def to_dict(self) -> dict[str, Any]:
        """For the script: a list over taps and seeds per epoch, four significant digits; a constant list is one."""
        about = {name: getattr(self, name) for name in ("epochs", "taps", "exact", "seeds")}
        return {
            **about,
            "values": {name: _by_epoch(values.transpose(1, 2, 0)) for name, values in self.by_seed.items()},
            **{name: _by_epoch(values) for name, values in self.extras.items()},
        }


def _by_epoch(values: np.ndarray) -> list[Any]:
    rounded = [[four(value) for value in row.ravel().tolist()] for row in values]
    return [row[0] if len(set(row)) == 1 else row for row in rounded]


def four(value: float) -> float | None:
    """Rounded to four significant digits; None for what is no number.

    >>> four(0.123456), four(1.23456e-9), four(1024.0), four(math.nan)
    (0.1235, 1.235e-09, 1024, None)
    """
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def choose_epochs(methods: Sequence[Method], most: int) -> tuple[int, ...]:
    """Columns that the methods of a setting share: epochs that all of them have, where those are enough to fill half
    of the columns; else epochs that half of the methods have, and where each of them ends."""
    found = [shared_epochs(drawn_records(method)) for method in methods]
    counts = Counter(epoch for epochs in found for epoch in epochs)
    ends = {epochs[-1] for epochs in found if epochs}
    common = [e for e, count in counts.items() if e in ends or count == len(methods)]
    if 2 * len(common) < most:
        common = [e for e, count in counts.items() if e in ends or 2 * count >= len(methods)]
    return pick(sorted(common), most)


def trace_layers(method: Method, epochs: Sequence[int]) -> LayerHistory:
    """Of the seeds that did not diverge (of all, if every one did); an epoch that one of them lacks has no values.

    A method that has none of these epochs has its own.
    """
    records, facts = drawn_records(method), method.facts
    shared = set(shared_epochs(records))
    if shared.isdisjoint(epochs):
        epochs = pick(sorted(shared), len(epochs))
    by_epoch = [{s.epoch: s for s in record.snapshots} for record in records]
    missing = np.full(len(facts.taps), np.nan)

    def values(name: str) -> np.ndarray:
        found = [[of_taps(facts, own[e], name) if e in shared else missing for e in epochs] for own in by_epoch]
        return np.array(found, dtype=float).reshape(len(records), len(epochs), len(facts.taps))

    by_seed = {name: found for name in SYMBOLS if not np.isnan(found := values(name)).all()}
    means = {name: mean_over_seeds(found, size=is_size(name)) for name, found in by_seed.items()}
    extras = {name: over(values(name)) for name, over in EXTRAS.items()}
    extras["null_sd"][:, list(facts.exact_taps)] = np.nan
    return LayerHistory(
        epochs=tuple(epochs),
        taps=facts.taps,
        exact=facts.exact_taps,
        seeds=tuple(seed for seed, record in method.runs.items() if any(record is r for r in records)),
        by_seed=by_seed,
        means=means,
        in_null=np.abs(means.get("cos", np.nan)) < NULL_SDS * extras["null_sd"],
        extras=extras,
    )


def pick(epochs: Sequence[int], most: int) -> tuple[int, ...]:
    """At most so many of ascending epochs, evenly on a log scale of 1 + epoch, first and last among them.

    >>> pick(range(0, 101), 8)
    (0, 1, 3, 6, 13, 26, 51, 100)
    """
    if len(epochs) <= most:
        return tuple(epochs)
    first, last = math.log1p(epochs[0]), math.log1p(epochs[-1])
    chosen = [-1]
    for i in range(most):
        wanted = first + (last - first) * i / (most - 1)
        free = range(chosen[-1] + 1, len(epochs) - most + i + 1)
        chosen.append(min(free, key=lambda j: abs(math.log1p(epochs[j]) - wanted)))
    return tuple(epochs[j] for j in chosen[1:])


def shared_epochs(records: Sequence[Record]) -> list[int]:
    """Epochs at which every record has a snapshot."""
    return sorted(set.intersection(*({s.epoch for s in r.snapshots} for r in records)))


def drawn_records(method: Method) -> list[Record]:
    """Runs that did not diverge; all, if every one did."""
    return method.whole or list(method.runs.values())


def mean_over_seeds(values: np.ndarray, *, size: bool) -> np.ndarray:
    """Over the first axis, of the seeds that have a value; sizes on a log scale, unless one of them is exactly zero.

    >>> mean_over_seeds(np.array([[1.0, 0.0], [4.0, 2.0], [np.nan, np.nan]]), size=True).round(9).tolist()
    [2.0, 1.0]
    """
    mean = mean_sd(values)[0]
    return np.where((values == 0).any(0), mean, 10 ** mean_sd(take_log(values))[0]) if size else mean


def _null_of_mean(sds: np.ndarray) -> np.ndarray:
    """As `auditing.tap_credit.null_of_mean`, for every epoch and tap: √Σ sd² / n = √(mean sd² / n)."""
    return np.sqrt(mean_sd(sds**2)[0] / np.maximum((~np.isnan(sds)).sum(0), 1))


EXTRAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows_used": np.fmin.reduce,
    "rows_no_gradient": np.fmax.reduce,
    "g_noise": np.fmax.reduce,
    "null_sd": _null_of_mean,
}
