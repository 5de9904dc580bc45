"""Numbers over seeds, of the values there are."""

from collections.abc import Iterable

import numpy as np


def quartiles(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower quartile, median and upper quartile over seeds (the first axis) of the values there are."""
    found = np.full((3, values.shape[1]), np.nan)
    for i, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        if len(known):
            found[:, i] = np.quantile(known, (0.25, 0.5, 0.75))
    return found[0], found[1], found[2]


def median(values: Iterable[float | None]) -> float:
    """Of all; NaN if there is none.

    >>> median([1.0, None, 4.0]), median([])
    (2.5, nan)
    """
    found = np.array(list(values), dtype=float)
    known = found[~np.isnan(found)]
    return float(np.median(known)) if len(known) else float("nan")
