"""What checks look at: a moment of one run, and a method, one rule in one setting over seeds with its baselines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from creditscope.record import Facts, Record, RunSpec, Snapshot, in_memory
from creditscope.record.spec import RULE_FIELDS
from creditscope.record.table import richness
from creditscope.registry import NETS, TASKS, Registry
from creditscope.text import count, name_options, span, with_options

Groups = dict[tuple[str, str], dict[int | None, dict[int, Record]]]
"""Rule and setting → number of last blocks that were trained, None: all → seed → record."""
SIZES = ("depth", "width")
"""Options of a net that its title always has."""


@dataclass(frozen=True)
class Moment:
    """What a check of a run judges."""

    facts: Facts
    snapshot: Snapshot
    untrained: Snapshot | None = None
    """The same net before training, where it was measured."""
    spec: RunSpec | None = None
    """None for a watched model."""
    history: tuple[Snapshot, ...] = ()
    """Of a watched model: its snapshots up to this one."""
    answers: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was computed of it alone, and is asked by several checks."""

    @classmethod
    def of(cls, record: Record, snapshot: Snapshot | None = None) -> "Moment":
        """A moment of this run, the last one by default."""
        chosen, first = snapshot or record.last, record.snapshots[0]
        untrained = first if record.facts.trainer and first.epoch == 0 and chosen is not first else None
        history = () if record.spec else tuple(s for s in record.snapshots if s.place <= chosen.place)
        return cls(record.facts, chosen, untrained, record.spec, history)

    @property
    def random_targets(self) -> bool:
        return self.spec is not None and self.spec.random_targets

    def remedy(self, watched: str = "standard") -> str:
        """What to do about a measurement that the tier left out; `watched` is the tier of a scope that has it."""
        if self.spec is None:
            return f'call snapshot(…, tier="{watched}")'
        how = "tier quick: run" if self.spec.tier == "quick" else "run it again"
        return f"{how} with --tier standard"


def first_epoch(record: Record, holds: Callable[[Snapshot], bool]) -> int | None:
    """The first measured epoch of training at which something holds; the untrained net is passed over."""
    return next((s.epoch for s in record.snapshots if s.epoch > 0 and holds(s)), None)


@dataclass
class Method:
    """Records of one method by seed, and those of its baselines."""

    label: str
    setting: str
    runs: dict[int, Record]
    frozen_own: dict[int, Record] = field(default_factory=dict)
    bp: dict[int, Record] = field(default_factory=dict)
    frozen_bp: dict[int, Record] = field(default_factory=dict)
    penalised_bp: dict[int, Record] = field(default_factory=dict)
    """BP under the method's own penalty, if it has one."""
    rungs: dict[int, dict[int, Record]] = field(default_factory=dict)
    """The depth ladder: number of last blocks that were trained → seed → record; 0 is `frozen_own`."""

    @property
    def facts(self) -> Facts:
        return self.first.facts

    @property
    def first(self) -> Record:
        """One of its records, where any will do."""
        return next(iter(self.runs.values()))

    @property
    def spec(self) -> RunSpec | None:
        """What was asked of its first run; None for a watched model."""
        return self.first.spec

    @property
    def records(self) -> list[Record]:
        """All of them, those of baselines too."""
        families = (self.runs, self.frozen_own, self.bp, self.frozen_bp, self.penalised_bp, *self.rungs.values())
        return [record for runs in families for record in runs.values()]

    @property
    def whole(self) -> list[Record]:
        """Runs that did not diverge."""
        return [record for record in self.runs.values() if record.provenance.status != "diverged"]

    @property
    def diverged(self) -> dict[int, int]:
        """Seeds whose loss stopped being finite, with the epoch."""
        return {s: epoch for s, r in self.runs.items() if (epoch := r.provenance.diverged_epoch) is not None}

    @property
    def divergence(self) -> str:
        """Which seeds diverged and when, in words; of a run that went on, what is not finite at its end."""
        epochs = self.diverged
        if not self.whole and len(epochs) == len(self.runs) > 1:
            first, last = min(epochs.values()), max(epochs.values())
            return f"all seeds, at {'epoch' if first == last else 'epochs'} {span(first, last)}"
        said = [f"seed {seed} at epoch {epoch}" for seed, epoch in epochs.items()]
        return ", ".join([*said, *filter(None, map(_not_finite, self.whole))])

    @property
    def not_judged(self) -> str:
        """Why there is nothing to judge, if there is not."""
        if self.random_targets:
            return "random targets"
        return "not trained yet" if self.whole and all(r.last.untrained for r in self.whole) else ""

    @property
    def random_targets(self) -> bool:
        return self.spec is not None and self.spec.random_targets


def _not_finite(record: Record) -> str:
    """Since when the loss or a state is no number, if it is none at the end, and where first."""
    lost = [s for s in record.snapshots if s.loss is None or None in s.taps.h_norm]
    if not lost or lost[-1] is not record.last:
        return ""
    first = lost[0]
    tap = next((tap for tap, size in enumerate(first.taps.h_norm) if size is None), None)
    what = "the loss is" if tap is None else f"the state of tap {tap} ({record.facts.taps[tap]}) is"
    seed = f"seed {record.spec.seed}, " if record.spec else ""
    return f"{seed}{what} not finite at {first.when}"


def accuracies(records: Mapping[int, Record]) -> dict[int, float]:
    """Final accuracy by seed; a diverged run has none."""
    whole = [(seed, r.last.accuracy) for seed, r in records.items() if r.provenance.status != "diverged"]
    return {seed: accuracy for seed, accuracy in whole if accuracy is not None}


def is_baseline(record: Record) -> bool:
    """Whether only part of the blocks was trained: a frozen run or a rung of the depth ladder."""
    return trained_blocks(record) is not None


def trained_blocks(record: Record) -> int | None:
    """How many of the last blocks were trained; None: all."""
    if record.spec is None:
        return None
    if record.spec.frozen:
        return 0
    return record.spec.train_last if record.spec.train_last >= 0 else None


def group_methods(records: Sequence[Record]) -> list[Method]:
    """One method per setting and rule, backprop first; frozen runs and rungs of the depth ladder become baselines.

    A setting is everything but the rule and the seed: task, targets, net, optimiser, epochs, precision.
    """
    groups: Groups = {}
    for record in records:
        seed = record.spec.seed if record.spec else 0
        runs = groups.setdefault((rule_key(record), setting_key(record)), {}).setdefault(trained_blocks(record), {})
        if seed not in runs or richness(record) > richness(runs[seed]):
            runs[seed] = record
    plain = {setting: found for (_, setting), found in groups.items() if _is_plain_bp(found)}
    methods = []
    for (_, setting), found in groups.items():
        if None not in found:
            continue
        first, bp = next(iter(found[None].values())), plain.get(setting, {})
        rungs = {k: dict(sorted(runs.items())) for k, runs in found.items() if k is not None}
        penalty, plain_bp = first.spec.penalty if first.spec else 0.0, next(iter(bp.get(None, {}).values()), None)
        if penalty and first.facts.rule.local and (frozen := _with_penalty(groups, first, 0.0).get(0)):
            # the same as with it: nothing reaches the stem of what the penalty asks of the blocks
            rungs.setdefault(0, dict(sorted(frozen.items())))
        methods.append(
            Method(
                label=_label(first),
                setting=_setting_label(first),
                runs=dict(sorted(found[None].items())),
                frozen_own=rungs.get(0, {}),
                bp=bp.get(None, {}),
                frozen_bp=bp.get(0, {}),
                penalised_bp=_with_penalty(groups, plain_bp, penalty).get(None, {}) if penalty and plain_bp else {},
                rungs=dict(sorted(rungs.items())),
            )
        )
    _tell_apart(methods)
    places = {setting: place for place, setting in enumerate(dict.fromkeys(m.setting for m in methods))}
    return sorted(methods, key=lambda m: (places[m.setting], bool(m.facts.inexact_taps)))


def _tell_apart(methods: Sequence[Method]) -> None:
    """Two rules from two files may have one name: then both are called by their files, too."""
    files: dict[tuple[str, str], set[str]] = {}
    for m in methods:
        files.setdefault((m.setting, m.label), set()).add(m.spec.rule if m.spec else "")
    for m in [m for m in methods if len(files[m.setting, m.label]) > 1]:
        m.label += f" ({m.spec.rule})" if m.spec else ""


def split_settings(records: Sequence[Record]) -> list[list[Record]]:
    """The records by the name of their setting: methods of one need nothing of another."""
    names: dict[str, str] = {}
    found: dict[str, list[Record]] = {}
    for record in records:
        if (key := setting_key(record)) not in names:
            names[key] = _setting_label(record)
        found.setdefault(names[key], []).append(record)
    return list(found.values())


def change_records(methods: Iterable[Method], change: Callable[[Record], Record]) -> list[Method]:
    """The same methods with every record changed, each once, however many of them it belongs to."""
    known: dict[int, Record] = {}

    def new(record: Record) -> Record:
        if id(record) not in known:
            known[id(record)] = change(record)
        return known[id(record)]

    def runs(old: Mapping[int, Record]) -> dict[int, Record]:
        return {seed: new(record) for seed, record in old.items()}

    names = ("runs", "frozen_own", "bp", "frozen_bp", "penalised_bp")
    return [
        replace(m, **{n: runs(getattr(m, n)) for n in names}, rungs={k: runs(own) for k, own in m.rungs.items()})
        for m in methods
    ]


def read_methods(methods: Iterable[Method]) -> list[Method]:
    """The same methods with the snapshots of all their records in memory."""
    return change_records(methods, in_memory)


def _with_penalty(groups: Groups, record: Record, penalty: float) -> dict[int | None, dict[int, Record]]:
    """What is on record of the same method under another penalty."""
    assert record.spec is not None
    asked = replace(record, spec=replace(record.spec, penalty=penalty))
    return groups.get((rule_key(asked), setting_key(asked)), {})


def rule_key(record: Record) -> str:
    """Equal for records of one method in one setting."""
    if record.spec is None:
        return repr(record.facts.rule)
    return repr([getattr(record.spec, name) for name in RULE_FIELDS])


def setting_key(record: Record) -> str:
    """Equal for records of one setting."""
    if record.spec is None:
        return repr((record.facts.taps, record.facts.tap_shapes, record.path, record.facts.is_network))
    return repr(record.spec.setting(without=RULE_FIELDS))


def _is_plain_bp(found: Mapping[int | None, Mapping[int, Record]]) -> bool:
    """Whether these are runs of backprop without a penalty."""
    record = next(record for runs in found.values() for record in runs.values())
    return record.spec is not None and record.spec.rule == "bp" and record.spec.penalty == 0


def _label(record: Record) -> str:
    spec, rule = record.spec, record.facts.rule
    if spec is None:
        return rule.label
    norm = f"norm {spec.credit_norm}" if spec.credit_norm != "none" else ""
    return ", ".join(filter(None, [rule.label, norm, f"λ {spec.penalty:g}" if spec.penalty else "", rule.variant]))


def _setting_label(record: Record) -> str:
    spec = record.spec
    if spec is None:
        what = "network" if record.facts.is_network else "watched model"
        return f"{what} {record.path.name}" if record.path else what
    usual = {f.name: f.default for f in fields(RunSpec)}
    names = ("optimiser", "lr", "schedule", "weight_decay", "decay_on", "batch", "precision")
    unusual = [name_options({n: v}) for n in names if (v := getattr(spec, n)) != usual[n]]
    unusual += [f"random targets{', redrawn per minibatch' * (spec.targets == 'redrawn')}"] * spec.random_targets
    task = _with_unusual(TASKS, spec.task, spec.task_options)
    net = _with_unusual(NETS, spec.net, spec.net_options, always=SIZES)
    return " · ".join([task, net, count(spec.epochs, "epoch"), *unusual])


def _with_unusual(registry: Registry, name: str, options: Mapping[str, Any], always: Sequence[str] = ()) -> str:
    """The name with the options that differ from their defaults, and those named."""
    usual = usual_options(registry, name)
    return with_options(name, {n: v for n, v in options.items() if n in always or n not in usual or usual[n] != v})


@cache
def usual_options(registry: Registry, name: str) -> dict[str, Any]:
    """The defaults of what a task, a net or a rule can be told."""
    return registry.defaults(name)
