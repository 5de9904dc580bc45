"""What can be drawn of a snapshot: its numbers, those of its taps, and growth over blocks."""

from collections.abc import Iterable

import numpy as np

from creditscope.auditing.stats import t_interval
from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.record import Facts, Snapshot
from creditscope.record.table import PER_TAP, read

HEAD = "head_taps."
"""Before the name of a quantity: of what the head reads, the class token in a net that has one."""
TITLES = {
    "accuracy": "accuracy",
    "gamma": "Γ, mean cosine over blocks",
    "cos": "cos(aₗ, gₗ)",
    "h_norm": "‖hₗ‖ per sample, median",
    "h_rms": "RMS(hₗ)",
    "g_norm": "‖gₗ‖ per sample, median",
    "growth": "growth, RMS(hₗ) / RMS(hₗ₋₁)",
    "rho": "ρ",
}
"""How an axis names them; others go by their own name."""


class NotMeasuredError(CreditscopeError):
    """A quantity that is in none of the records."""

    REMEDY = "Draw another quantity, or measure it (tier standard or full); a run that diverged has no last values."

    def __init__(self, quantity: str, *, form: str = "values of", remedy: str = REMEDY):
        super().__init__(f"Expected records with {form} {quantity}, but got none. {remedy}")


def title(quantity: str) -> str:
    """The name on an axis."""
    quantity = quantity.removeprefix(HEAD)
    return TITLES.get(quantity, quantity.replace("_", " "))


def is_size(quantity: str) -> bool:
    """Whether it is drawn on a log axis: norms and their ratios.

    >>> is_size("g_norm"), is_size("growth"), is_size("cos")
    (True, True, False)
    """
    ratios = ("g_rel", "g_noise", "ratio", "growth")
    return "norm" in quantity or "rms" in quantity or quantity.removeprefix(HEAD) in ratios


def check_per_tap(quantity: str) -> None:
    """Refuse what taps do not have."""
    if quantity.removeprefix(HEAD) not in PER_TAP:
        raise UnknownNameError("quantity of a tap", quantity, PER_TAP)


def of_taps(facts: Facts, snapshot: Snapshot, quantity: str) -> np.ndarray:
    """One number per tap; NaN where there is none."""
    values = read(facts, snapshot, quantity)
    return np.array(values or [None] * len(facts.taps), dtype=float)


def mean_and_half(columns: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Of each column its mean and how far the 95 % t interval reaches, of the values there are; NaN where undefined."""
    known = [column[~np.isnan(column)].tolist() for column in columns]
    found = [t_interval(values) if values else None for values in known]
    halves = [None if i is None or i.high is None else i.high - i.mean for i in found]
    return np.array([i and i.mean for i in found], dtype=float), np.array(halves, dtype=float)


def take_log(values: np.ndarray) -> np.ndarray:
    """log10; NaN for zero, too."""
    return np.log10(np.where(values > 0, values, np.nan))


def mean_sd(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd (ddof 1) over the first axis of the values there are; NaN where undefined."""
    masked = np.ma.masked_invalid(values)
    mean, sd = masked.mean(axis=0), masked.std(axis=0, ddof=1)
    return np.asarray(np.ma.filled(mean, np.nan)), np.asarray(np.ma.filled(sd, np.nan))
