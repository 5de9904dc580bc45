"""The runs behind figure `normalisation`: conditions (norm, λ) in settings (optimiser, terminal norm), over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from creditscope.auditing.depth import better_baseline, paired_interval
from creditscope.auditing.methods import accuracies as by_seed
from creditscope.auditing.per_tap import largest_growth
from creditscope.auditing.stats import known_mean
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._selection import require_one_setting
from creditscope.paper.figures._words import OPTIMISERS
from creditscope.record import Record, RunSpec
from creditscope.record.spec import COMPARED_NORMS, MEASURING_FIELDS

RULE = "dfa"
NORMS: tuple[str, ...] = COMPARED_NORMS
VARIED = ("rule", "seed", "frozen", "credit_norm", "penalty", "optimiser", "lr", "weight_decay", "net_options")
Runs = dict[int, Record]
"""Complete runs by seed."""


@dataclass
class Condition:
    """One norm and λ in one setting."""

    norm: str
    penalty: float
    runs: Runs = field(default_factory=dict)
    diverged: list[int] = field(default_factory=list)

    def accuracy(self) -> np.ndarray:
        """By seed."""
        return accuracies(self.runs)

    def deep_cosine(self) -> np.ndarray:
        """Mean cosine over taps 2..L, by seed."""
        return np.array([known_mean(r.last.taps.cos[2:]) for r in self.runs.values()], dtype=float)

    def growth(self) -> np.ndarray:
        """Largest growth of the stream over one block, by seed."""
        return np.array([largest_growth(r.facts, r.last) for r in self.runs.values()], dtype=float)


@dataclass
class Setting:
    """One optimiser on one net: its conditions and what they are held against."""

    optimiser: str
    lr: float
    terminal: bool
    conditions: dict[tuple[str, float], Condition] = field(default_factory=dict)
    frozen: dict[str, Runs] = field(default_factory=dict)
    """Frozen blocks under the rule, by norm."""
    bp: Runs = field(default_factory=dict)
    frozen_bp: Runs = field(default_factory=dict)

    @property
    def label(self) -> str:
        """In words."""
        return f"{OPTIMISERS[self.optimiser]}, {'terminal LayerNorm' if self.terminal else 'no terminal norm'}"

    def gains(self, condition: Condition) -> np.ndarray:
        """Use of depth by seed: accuracy − that of the better of own-rule frozen and BP-frozen, as in CS004."""
        trained, own, bp = map(by_seed, (condition.runs, self.frozen.get(condition.norm, {}), self.frozen_bp))
        seeds = [seed for seed in trained if seed in own and seed in bp]
        if not seeds:
            return np.array([])
        _, better = better_baseline(own, bp, seeds)
        return np.array([trained[seed] - better[seed] for seed in seeds])

    def bp_gain(self) -> float:
        """BP's own use of depth."""
        found = paired_interval(by_seed(self.bp), by_seed(self.frozen_bp))
        return found.mean if found else np.nan


@dataclass(frozen=True)
class Grid:
    """All settings; `notes` say what is missing."""

    settings: tuple[Setting, ...]
    penalties: tuple[float, ...]
    seeds: tuple[int, ...]
    spec: RunSpec
    notes: tuple[str, ...]


def accuracies(runs: Runs) -> np.ndarray:
    """Final accuracy by seed, NaN where it was not measured."""
    return np.array([r.last.accuracy for r in runs.values()], dtype=float)


def select_conditions(records: Sequence[Record]) -> Grid:
    """Every condition on record; refuses runs that differ in more than what the figure varies."""
    wanted = [(r.spec, r) for r in records if r.spec and r.spec.rule in (RULE, "bp") and r.spec.train_last == -1]
    wanted = [(spec, r) for spec, r in wanted if spec.rule == RULE or (spec.penalty == 0)]
    wanted = [(spec, r) for spec, r in wanted if spec.credit_norm in NORMS]
    trained = [(spec, r) for spec, r in wanted if spec.rule == RULE and not spec.frozen]
    if not trained:
        raise CreditscopeError(
            f"Expected records of {RULE} by credit norm and penalty, but got none among {len(records)} records. "
            "creditscope figure normalisation trains them."
        )
    _check(trained, [spec for spec, _ in wanted])
    settings: dict[tuple[str, bool], Setting] = {}
    for spec, record in wanted:
        key = spec.optimiser, bool(spec.net_options.get("terminal_norm", True))
        _place(settings.setdefault(key, Setting(spec.optimiser, spec.lr, key[1])), spec, record)
    ordered = sorted(settings, key=lambda key: (list(OPTIMISERS).index(key[0]), not key[1]))
    penalties = tuple(sorted({spec.penalty for spec, _ in trained}))
    seeds = tuple(sorted({spec.seed for spec, _ in trained}))
    chosen = tuple(settings[key] for key in ordered)
    return Grid(chosen, penalties, seeds, trained[0][0], tuple(_missing(chosen, penalties, seeds)))


def _check(trained: Sequence[tuple[RunSpec, Record]], specs: Sequence[RunSpec]) -> None:
    free = (*VARIED, "rule_options", "rule_source", *MEASURING_FIELDS)
    require_one_setting(specs, free=free, variants=("rule_options", "rule_source"))
    for optimiser in dict.fromkeys(spec.optimiser for spec in specs):
        rates = sorted({(spec.lr, spec.weight_decay) for spec in specs if spec.optimiser == optimiser})
        if len(rates) > 1:
            raise CreditscopeError(
                f"Expected one learning rate and weight decay for {optimiser}, but got "
                f"{', '.join(f'{lr:g} and {decay:g}' for lr, decay in rates)}. Pass the records of one of them."
            )
    sizes = {str({**s.net_options, "terminal_norm": None}) for s in specs}
    if len(sizes) > 1:
        raise CreditscopeError(f"Expected nets of one size, but got {len(sizes)}. Pass the records of one of them.")
    if len(trained[0][1].facts.taps) < 3:
        raise CreditscopeError(
            "Expected a net of at least two blocks, for a cosine of the deep taps 2..L, but got one."
        )


def _place(setting: Setting, spec: RunSpec, record: Record) -> None:
    """Put a run where it belongs."""
    complete = record.provenance.status == "complete"
    if spec.rule == RULE and not spec.frozen:
        key = spec.credit_norm, spec.penalty
        condition = setting.conditions.setdefault(key, Condition(*key))
        if complete:
            condition.runs[spec.seed] = record
        else:
            condition.diverged.append(spec.seed)
    elif complete and spec.rule == RULE:
        setting.frozen.setdefault(spec.credit_norm, {})[spec.seed] = record
    elif complete:
        (setting.frozen_bp if spec.frozen else setting.bp)[spec.seed] = record


def _missing(settings: Sequence[Setting], penalties: Sequence[float], seeds: Sequence[int]) -> list[str]:
    notes = []
    for setting in settings:
        absent = sum(
            len(seeds) - len(c.runs) - len(c.diverged) if (c := setting.conditions.get((norm, penalty))) else len(seeds)
            for norm in NORMS
            for penalty in penalties
        )
        held = [setting.bp, setting.frozen_bp, *(setting.frozen.get(norm, {}) for norm in NORMS)]
        references = sum(len(set(seeds) - runs.keys()) for runs in held)
        for count, what in ((absent, "runs"), (references, "reference runs")):
            notes += [f"{setting.label}: {count} {what} not on record or not complete."] if count else []
    return notes
