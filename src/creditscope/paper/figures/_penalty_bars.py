"""The bars of figure `penalty_rescue`: cosine, ρ and descent of the deep taps, of the rule, a null and a control."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from creditscope.auditing.stats import Interval, t_interval
from creditscope.paper.figures._penalty import DEEP, KINDS, Rescue
from creditscope.plots._quantities import mean_sd
from creditscope.record import Snapshot

NULL, EXACT = "null", "exact"
COLUMNS = {
    **{key: KINDS[key].label for key in ("early", "weak", "strong")},
    NULL: "fresh-B null",
    EXACT: "BP gradient",
}
"""The five conditions; null and control are those of the first one's snapshots."""


@dataclass(frozen=True)
class Metric:
    """A measure per tap: its fields of the record."""

    label: str
    own: str
    fresh: str
    fresh_sd: str
    exact: str | None
    """Its value with the gradient for credit; None if that is 1 by definition."""


METRICS = (
    Metric("Cosine", "cos", "fresh_cos", "fresh_sd", None),
    Metric("ρ", "rho", "fresh_rho", "fresh_rho_sd", "rho_exact"),
    Metric("Descent", "descent", "fresh_descent", "fresh_descent_sd", None),
)


@dataclass(frozen=True)
class Bar:
    """Mean and sd, NaN where there is none to show."""

    mean: float
    sd: float
    defined: bool = False
    """Whether it is so by definition."""


def deep_mean(moments: Sequence[Snapshot], name: str) -> np.ndarray:
    """Mean over taps 2..L of a measure, by seed; NaN unless all of them have it."""
    return np.array([values.mean() if len(values) else np.nan for values in _deep(moments, name)], dtype=float)


def deep_draw_sd(moments: Sequence[Snapshot], name: str) -> np.ndarray:
    """Sd over draws of feedback of the mean over taps 2..L, by seed, from the sds of the taps.

    DFA draws the matrix of every tap independently, so that the variances of the taps add up.
    """
    return np.array([np.linalg.norm(sd) / len(sd) if len(sd) else np.nan for sd in _deep(moments, name)], dtype=float)


def _deep(moments: Sequence[Snapshot], name: str) -> list[np.ndarray]:
    return [np.array(getattr(s.taps, name)[DEEP:], dtype=float) for s in moments]


def measure_bar(found: Rescue, metric: Metric, column: str) -> Bar:
    """One bar: mean and sd (ddof 1) over seeds; of the null over draws and seeds."""
    moments = found.moments("early" if column in (NULL, EXACT) else column)
    if not moments:
        return Bar(np.nan, np.nan)
    if column == NULL:
        return _null_bar(moments, metric)
    if column == EXACT and metric.exact is None:
        return Bar(1.0, np.nan, defined=True)
    mean, sd = mean_sd(deep_mean(moments, metric.exact if column == EXACT and metric.exact else metric.own))
    return Bar(float(mean), float(sd))


def _null_bar(moments: Sequence[Snapshot], metric: Metric) -> Bar:
    """Total variance: that of the draws, mean over seeds, and that of the seeds' means."""
    mean, between = mean_sd(deep_mean(moments, metric.fresh))
    within = mean_sd(deep_draw_sd(moments, metric.fresh_sd) ** 2)[0]
    return Bar(float(mean), float(np.sqrt(within + np.nan_to_num(between) ** 2)))


def over_null(found: Rescue, metric: Metric, column: str) -> Interval | None:
    """The rule's own less that of fresh feedback at the same snapshots, paired over seeds."""
    moments = found.moments(column)
    return paired(deep_mean(moments, metric.own), deep_mean(moments, metric.fresh))


def paired(above: np.ndarray, below: np.ndarray) -> Interval | None:
    """95 % t interval of the difference over seeds; None if there is no pair."""
    gains = above - below if len(above) == len(below) else np.array([])
    known = gains[np.isfinite(gains)]
    return t_interval(known.tolist()) if len(known) else None


def note_missing(found: Rescue) -> list[str]:
    """Bars that lack values of some seeds, or of all."""
    notes = []
    for key in ("early", "weak", "strong"):
        moments = found.moments(key)
        fields = {metric.label: metric.own for metric in METRICS}
        if key == "early":
            fields |= {f"{metric.label} of fresh feedback": metric.fresh for metric in METRICS}
            fields |= {f"{metric.label} of the gradient": metric.exact for metric in METRICS if metric.exact}
        for name, field in fields.items():
            lost = int(np.isnan(deep_mean(moments, field)).sum())
            notes += [f"{KINDS[key].label}: no value of {name} for {lost} of {len(moments)} seeds."] if lost else []
    return notes
