"""Every run behind the reproduction table as a synthetic record, and the same with other numbers."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from paper_runs import run_of

from creditscope.paper.published.numbers import PUBLISHED, Published
from creditscope.paper.published.readings import RunFinder
from creditscope.paper.studies import DEFAULTS, drop_repeated
from creditscope.record import Record
from creditscope.registry import STUDIES

NAMES = ("audit_hero", "snapshot_resmlp", "snapshot_vit", "cross_architecture", "penalty_rescue", "reproduction")
NAMES += ("conventions", "depth_scan", "baselines")
TAPS = {"rho_exact": 0.998, "fresh_rho": 0.001, "fresh_rho_sd": 0.01, "cos_input": 0.3}


@cache
def everything() -> tuple[Record, ...]:
    """Every run on images at scale paper, the seeds a little apart, each condition with an accuracy of its own."""
    wanted = [w for name in NAMES for w in STUDIES.get(name)("paper").runs if w["net"] != "gcn"]
    conditions: dict[str, int] = {}
    found = []
    for one in drop_repeated(wanted):
        fields = {**DEFAULTS, **one, "seed": 0}
        own = conditions.setdefault(str(sorted(fields.items(), key=str)), len(conditions))
        accuracy = 0.2 + 0.005 * own + 1e-4 * (one["seed"] % 7)
        found.append(run_of(one, accuracy=accuracy, taps=TAPS))
    return tuple(found)


def entry(name: str) -> Published:
    return next(p for p in PUBLISHED if p.id == name)


def change(name: str, **others) -> list[Record]:
    """All records with other numbers in the runs that an entry reads: functions of the seed's place give snapshots."""
    finder = RunFinder(everything())
    entry(name).reading(finder)
    seeds = sorted({r.spec.seed for r in finder.read.values()})
    found = []
    for record in everything():
        if id(record) in finder.read:
            fields = {field: make(seeds.index(record.spec.seed)) for field, make in others.items()}
            taps = fields.pop("taps", {})
            last = replace(record.last, taps=replace(record.last.taps, **taps), **fields)
            record = replace(record, snapshots=(*record.snapshots[:-1], last))
        found.append(record)
    return found


def is_seed(record: Record, rule: str, seeds: Iterable[int]) -> bool:
    """Whether it is the plain run of 100 epochs of a rule, on one of the seeds."""
    spec = record.spec
    plain = (spec.net, spec.rule, spec.epochs, spec.frozen, spec.credit_norm) == ("resmlp", rule, 100, False, "none")
    same = spec.net_options == {"depth": 4, "width": 256, "terminal_norm": True} and spec.targets == "true"
    return plain and same and not spec.rule_options and spec.seed in seeds


def numbers(text: str) -> list[float]:
    """Those in a text, in order."""
    return [float(word) for word in re.findall(r"[+-]?\d+\.?\d*(?:e-?\d+)?", text)]
