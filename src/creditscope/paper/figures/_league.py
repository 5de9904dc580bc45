"""The league as its figures read it: boards, one a setting, of entries, each a method with its share of BP's gain."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from creditscope.auditing.depth import DepthUse, use_of_depth
from creditscope.auditing.methods import Method, group_methods, split_settings
from creditscope.auditing.stats import Interval, known_mean, t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.standings import deep_cosine, growth
from creditscope.paper.studies._league import FAMILIES
from creditscope.record import Facts, Record, RunSpec, Snapshot
from creditscope.text import count

NETS = {"resmlp": "ResMLP", "vit": "ViT-Mini", "lenet": "LeNet", "gcn": "GCN"}
TASKS = {"cifar10": "CIFAR-10", "cora": "Cora"}
FAMILY = {rule: family for family, rules in FAMILIES.items() for rule in rules}


@dataclass(frozen=True)
class Entry:
    """One method in one setting, with its baselines."""

    method: Method
    depth: DepthUse

    @property
    def rule(self) -> str:
        return self.method.facts.rule.name

    @property
    def name(self) -> str:
        """As tables call it: "DFA, λ 0.01"."""
        return self.method.label

    @property
    def short(self) -> str:
        """As drawings call it; what λ is the key says."""
        return self.name.replace(f", λ {self.penalty:g}", " λ").replace("beta ", "β ")

    @property
    def penalty(self) -> float:
        return self.spec.penalty

    @property
    def spec(self) -> RunSpec:
        assert self.method.spec is not None
        return self.method.spec

    @property
    def family(self) -> str:
        """Of rules of which it is one; "" of BP and of rules from elsewhere."""
        return FAMILY.get(self.rule, "")

    @cached_property
    def gain(self) -> Interval:
        """Over the better frozen twin, pp."""
        return t_interval([100 * gain for gain in self.depth.gains])

    def over_seeds(self, measure: Callable[[Facts, Snapshot], float | None], epoch: int = -1) -> float:
        """Mean over seeds of a number of snapshots, at an epoch (−1: the end); NaN where none was taken."""
        found = [measure(r.facts, s) for r in self.method.whole for s in _at(r, epoch)]
        known = known_mean(found)
        return np.nan if known is None else known

    @cached_property
    def cos(self) -> float:
        """At the end, over taps without exact credit; BP's is 1 by definition."""
        return self.over_seeds(deep_cosine) if self.method.facts.inexact_taps else 1.0

    @cached_property
    def growth(self) -> float:
        """Largest over one block at the end, geometric mean over seeds; NaN in a net without skips."""
        return math.exp(self.over_seeds(growth))


def _at(record: Record, epoch: int) -> list[Snapshot]:
    return [record.last] if epoch == -1 else [s for s in record.snapshots if s.epoch == epoch]


@dataclass(frozen=True)
class Board:
    """The entries of one setting, in the order of the study."""

    name: str
    entries: tuple[Entry, ...]

    @cached_property
    def bp_gain(self) -> Interval:
        """What depth is worth to BP, pp."""
        return t_interval([100 * gain for gain in self.entries[0].depth.bp_gains])

    @cached_property
    def shared(self) -> bool:
        """Whether gains can be told in shares of BP's: it gains something, by its interval."""
        return self.bp_gain.low is not None and self.bp_gain.low > 0

    def stands(self, entry: Entry) -> Interval:
        """Its share of BP's gain, or its gain in pp where BP has none."""
        share = entry.depth.share_interval if self.shared else entry.gain
        assert share, f"{entry.name} has no share"
        return share

    @property
    def others(self) -> list[Entry]:
        """All but BP."""
        return [entry for entry in self.entries if entry.rule != "bp"]

    @property
    def task(self) -> str:
        """As it is called in words."""
        return name_task(self.entries[0].spec)

    @property
    def net(self) -> str:
        """The same of it."""
        return name_net(self.entries[0].spec)

    @property
    def setting(self) -> str:
        """Task, net and recipe, and the seeds."""
        seeds = {len(entry.depth.seeds) for entry in self.entries}
        return f"{self.entries[0].method.setting}; {count(max(seeds), 'seed')}"


def find_boards(records: Sequence[Record]) -> tuple[list[Board], tuple[str, ...]]:
    """A board for each setting in which a rule has BP and frozen twins beside it, and what is missing of the others."""
    boards, gaps = list[Board](), list[str]()
    settings = split_settings([r for r in records if r.spec])
    for own, name in zip(settings, name_settings([own[0].spec for own in settings]), strict=True):
        methods = group_methods(own)
        entries = [Entry(method, depth) for method in methods if (depth := use_of_depth(method))]
        if any(entry.rule != "bp" for entry in entries):
            board = Board(name, tuple(entries))
            told = [entry for entry in entries if not board.shared or entry.depth.share_interval]
            boards.append(Board(name, tuple(told)))
            gaps += [f"{name}, {m.label}: no frozen twins" for m in methods if m.label not in {e.name for e in entries}]
            gaps += [f"{name}, {e.name}: too few seeds beside BP's for a share" for e in entries if e not in told]
        else:
            gaps.append(f"{name}: without frozen twins, or begun only")
    if not boards:
        raise CreditscopeError(
            f"Expected rules with BP and frozen twins beside them, but got none among {len(records)} records. Train "
            "them first (creditscope reproduce --only league), or pass other records."
        )
    return boards, tuple(gaps)


def name_task(spec: RunSpec) -> str:
    """As it is called in words."""
    return TASKS.get(spec.task, spec.task)


def name_net(spec: RunSpec) -> str:
    """As it is called in words."""
    return NETS.get(spec.net, spec.net)


def name_settings(specs: Sequence[RunSpec | None]) -> list[str]:
    """Of each net and task, shortly; those of one name by what tells them apart: depth, epochs, or their order."""
    known = [spec for spec in specs if spec]
    names = [f"{name_net(spec)}, {name_task(spec)}" for spec in known]
    apart = (
        [f"L\u00a0=\u00a0{spec.net_options.get('depth')}" for spec in known],
        [f"{spec.epochs} epochs" for spec in known],
        [f"no. {i}" for i in range(1, len(known) + 1)],
    )
    for words in apart:
        said = [{w for other, w in zip(names, words, strict=True) if other == name} for name in names]
        names = [f"{n}, {w}" if len(all_) > 1 else n for n, w, all_ in zip(names, words, said, strict=True)]
    return names


def letters(boards: Sequence[Board]) -> Mapping[str, str]:
    """Of panels, a board each, by its name; one alone has none."""
    return {board.name: "ABCDEFGHIJ"[i] if len(boards) > 1 else "" for i, board in enumerate(boards)}
