"""Numbers over seeds, of the values there are."""

from collections.abc import Iterable

import numpy as np


def mean_sd(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd (ddof 1) over seeds, the first axis, of the values there are; NaN where undefined."""
    masked = np.ma.masked_invalid(values)
    mean, sd = masked.mean(axis=0), masked.std(axis=0, ddof=1)
    return np.asarray(np.ma.filled(mean, np.nan)), np.asarray(np.ma.filled(sd, np.nan))


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


def take_log(values: np.ndarray) -> np.ndarray:
    """log10; NaN for an exact zero, too."""
    return np.log10(np.where(values > 0, values, np.nan))
