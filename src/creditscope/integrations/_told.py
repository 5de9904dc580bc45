"""What loggers are told of a scope: a few numbers, how numbers are spread over the layers, and the verdict."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from creditscope.auditing import Audit
from creditscope.auditing.checks import what_to_do
from creditscope.auditing.verdict import explain
from creditscope.record import Facts, Snapshot

if TYPE_CHECKING:
    from creditscope.scope import Scope

PREFIX = "creditscope"
"""Before every name."""
LOGGED = ("h_rms", "g_norm", "cos")
"""Of each tap; `Snapshot.scalars` has all that was measured."""
OF_CREDIT = ("cos", "gamma", "gamma_inexact", "gamma_null_sd")
"""What says nothing where every tap is told the exact gradient."""
SPREAD = {"taps": ("h_rms", "g_norm"), "weights": ("exact_norm", "update"), "modules": ("rms", "dead", "saturated")}
"""Whose values over layers are a histogram, by group; those that were not measured are left out."""
SIZES = ("h_rms", "g_norm", "exact_norm", "update", "rms")
"""Of which a histogram is over logarithms to base 10."""


class Writer(Protocol):
    """Something that takes down what a scope saw."""

    def write(self, scope: "Scope") -> None:
        """The scalars and histograms of its last snapshot."""
        ...

    def tell(self, audit: Audit, step: int) -> None:
        """The verdict, in words."""
        ...


def choose_scalars(facts: Facts, snapshot: Snapshot) -> dict[str, float]:
    """Numbers of the whole net and a few of every tap, by the names under which they are logged."""
    found = {}
    for name, value in snapshot.scalars(facts).items():
        group, _, measure = name.rpartition("/")
        if (not group or (group.startswith("taps/") and measure in LOGGED)) and math.isfinite(value):
            found[f"{PREFIX}/{name}"] = value
    silent = () if facts.inexact_taps else OF_CREDIT
    return {name: value for name, value in found.items() if name.rpartition("/")[2] not in silent}


def spread_over_layers(snapshot: Snapshot) -> dict[str, list[float]]:
    """Values over layers by name; of sizes their logarithms, so that zeros are left out."""
    found = {}
    for group, measures in SPREAD.items():
        for measure in measures:
            values = [v for v in getattr(getattr(snapshot, group, None), measure, ()) if v is not None]
            if measure in SIZES:
                values = [math.log10(v) for v in values if v > 0]
            if values := [v for v in values if math.isfinite(v)]:
                found[f"{PREFIX}/over_{group}/{'log10_' * (measure in SIZES)}{measure}"] = values
    return found


def word_verdict(audit: Audit) -> str:
    """The verdict of every method with its reason, and what to do, a line each."""
    lines = [f"{PREFIX}: {m.verdict}. {explain(m)}" for m in audit.methods]
    told = (f for m in audit.methods for f in m.findings if f.is_issue or not m.network)
    return "\n".join([*lines, *what_to_do(told)])


def name_scalars(scope: "Scope") -> Mapping[str, float]:
    """The scalars of the last snapshot, for loggers that know nothing else."""
    return choose_scalars(scope.facts, scope.snapshots[-1])


class ScalarWriter:
    """Scalars alone, to a logger of Lightning that knows nothing else."""

    def __init__(self, logger: Any):
        self.logger = logger

    def write(self, scope: "Scope") -> None:
        """The scalars of the last snapshot."""
        self.logger.log_metrics(dict(name_scalars(scope)), step=scope.snapshots[-1].step)

    def tell(self, audit: Audit, step: int) -> None:
        """There is no place for words; they are printed."""
