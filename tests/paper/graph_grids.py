"""Records of study `graph_depth` made in memory, and what tests ask of its figure."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from builders import make_facts, make_record, make_snapshot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from creditscope.paper.figures.graph_depth import describe
from creditscope.paper.studies.graph_depth import BP_VARIANTS, RULES, Method, graph_depth, method_of
from creditscope.record import Record, RuleFacts

SEEDS = (1, 2, 3)
DEPTHS = (2, 8, 12, 16)
FAILS = 12
"""Where BP by the recipe first fails in the records below: 0.8 − 0.04 · 12 is not above the majority class by 5 pp."""
MAJORITY = 0.319
KAFT = RULES[-1]
RECIPE = BP_VARIANTS[0]
LABELS = {"bp": "BP", "dfa": "DFA", "dfa_gnn": "DFA-GNN", "grape": "GrAPE", "kaft": "KAFT"}
SLOPES = {"bp": 0.04, "dfa": 0.03, "dfa_gnn": 0.025, "grape": 0.02, "kaft": 0.01}
Key = tuple[str, int, Method, int]


def accuracy_of(task: str, depth: int, method: Method, seed: int) -> float:
    """Falls with depth, less so with gain, a residual or no decay; seeds scatter differently for each rule."""
    slope = SLOPES[method.rule] / (method.gain * (3 if method.residual else 1) * (1 if method.decay else 1.5))
    scatter = 0.01 * np.sin(seed * (2 + len(method.rule)))
    return 0.8 - slope * depth + scatter - 0.05 * (task == "citeseer")


def make_run(
    wanted: dict[str, Any], *, accuracy: float, gamma: float | None, majority: float | None = MAJORITY, **others: Any
) -> Record:
    rule = RuleFacts(name=wanted["rule"], label=LABELS[wanted["rule"]])
    facts = {"rule": rule, "classes": 7, "chance": 1 / 7, "best_constant": majority}
    known = make_facts(**facts)
    snapshots = [make_snapshot(known, epoch=e, accuracy=accuracy, gamma=gamma) for e in (0, wanted["epochs"])]
    return make_record(**{**wanted, "facts": facts, "snapshots": snapshots, **others})


@cache
def make_grid(*, tasks=("cora", "citeseer"), depths=DEPTHS, seeds=SEEDS) -> dict[Key, Record]:
    """Records of every method by (task, depth, method, seed)."""
    found = {}
    for wanted in graph_depth("paper", tasks=tasks, depths=depths, seeds=seeds).runs:
        plain = make_run(wanted, accuracy=0.5, gamma=1.0)
        assert plain.spec is not None
        key = plain.spec.task, wanted["net_options"]["depth"], method_of(plain.spec), wanted["seed"]
        gamma = 1.0 if wanted["rule"] == "bp" else 0.9 - 0.02 * key[1] + 0.01 * key[3]
        found[key] = make_run(wanted, accuracy=accuracy_of(*key), gamma=gamma)
    return found


def changed(found: dict[Key, Record], *key: Any, **changes: Any) -> list[Record]:
    """The records, with last measures changed in those whose key starts so."""
    records = []
    for own, record in found.items():
        if own[: len(key)] == key:
            record = replace(record, snapshots=(record.snapshots[0], replace(record.last, **changes)))
        records.append(record)
    return records


def diverged(found: dict[Key, Record], *keys: tuple[Any, ...]) -> list[Record]:
    """The records, with those diverged whose key starts with one of `keys`."""
    end = {"status": "diverged", "diverged_epoch": 3}
    return [
        replace(r, provenance=replace(r.provenance, **end)) if any(own[: len(k)] == k for k in keys) else r
        for own, r in found.items()
    ]


def by_key(found: dict[Key, Record], records: Sequence[Record]) -> dict[Key, Record]:
    return dict(zip(found, records, strict=True))


def words(values: Sequence[float]) -> str:
    """Mean ± half of the t interval as captions have it."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{np.mean(values):.2f} ± {half:.2f}".replace("0.", ".")


def accuracies(depth: int, method: Method, task: str = "cora") -> list[float]:
    return [accuracy_of(task, depth, method, seed) for seed in SEEDS]


def panel(fig: Figure, task: str, kind: str) -> Axes:
    return next(ax for ax in fig.axes if ax.get_label() == f"{task} {kind}")


def drawn(ax: Axes, gid: str) -> list[float]:
    (line,) = [line for line in ax.lines if line.get_gid() == gid]
    return [float(y) for y in np.asarray(line.get_ydata())]


def said_in(ax: Axes, gid: str) -> str:
    (text,) = [text for text in ax.texts if text.get_gid() == gid]
    return text.get_text()


def said_of(records: Sequence[Record]) -> str:
    """What is printed, on one line with plain spaces; its sentences are those drawn, too."""
    return " ".join(describe(records).split()).replace("\u00a0", " ")
