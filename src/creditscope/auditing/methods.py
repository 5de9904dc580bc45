"""Group records into methods: one rule on one task and net over seeds, with the baselines it is judged by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from creditscope.record import Record, RunSpec
from creditscope.record.schema import RULE_FIELDS


@dataclass
class Method:
    """Records of one method by seed, and those of its baselines."""

    label: str
    setting: str
    runs: dict[int, Record]
    frozen_own: dict[int, Record] = field(default_factory=dict)
    bp: dict[int, Record] = field(default_factory=dict)
    frozen_bp: dict[int, Record] = field(default_factory=dict)

    @property
    def facts(self):
        """Facts of the method (the same for every seed)."""
        return next(iter(self.runs.values())).facts

    @property
    def diverged(self) -> dict[int, int]:
        """Seeds whose loss stopped being finite, with the epoch."""
        return {s: epoch for s, r in self.runs.items() if (epoch := r.provenance.diverged_epoch) is not None}


def accuracies(records: dict[int, Record]) -> dict[int, float]:
    """Final accuracy by seed; a diverged run has none."""
    whole = {seed: r for seed, r in records.items() if r.provenance.status != "diverged"}
    return {seed: r.last.accuracy for seed, r in whole.items() if r.last.accuracy is not None}


def group_methods(records: Sequence[Record]) -> list[Method]:
    """One method per setting and rule, backprop first; frozen runs become baselines.

    A setting is everything but the rule and the seed: task, net, optimiser, epochs, precision.
    """
    groups: dict[tuple, dict[int, Record]] = {}
    for record in records:
        key = (_rule_key(record), _setting_key(record), _frozen(record))
        seed = record.spec.seed if record.spec else 0
        runs = groups.setdefault(key, {})
        if seed not in runs or len(record.snapshots) > len(runs[seed].snapshots):
            runs[seed] = record
    plain = {setting: rule for rule, setting, _ in groups if _is_plain_bp(groups, rule, setting)}
    methods = []
    for (rule, setting, frozen), runs in groups.items():
        if frozen:
            continue
        bp = plain.get(setting)
        methods.append(
            Method(
                label=_label(next(iter(runs.values()))),
                setting=_setting_label(next(iter(runs.values()))),
                runs=dict(sorted(runs.items())),
                frozen_own=groups.get((rule, setting, True), {}),
                bp=groups.get((bp, setting, False), {}) if bp else {},
                frozen_bp=groups.get((bp, setting, True), {}) if bp else {},
            )
        )
    settings = list(dict.fromkeys(m.setting for m in methods))
    return sorted(methods, key=lambda m: (settings.index(m.setting), bool(m.facts.inexact_taps)))


def _rule_key(record: Record) -> str:
    if record.spec is None:
        return repr(record.facts.rule)
    return repr([getattr(record.spec, name) for name in RULE_FIELDS])


def _setting_key(record: Record) -> str:
    if record.spec is None:
        return repr((record.facts.taps, record.facts.tap_shapes))
    return repr(record.spec.setting(without=RULE_FIELDS))


def _frozen(record: Record) -> bool:
    return record.spec is not None and record.spec.frozen


def _is_plain_bp(groups: dict[tuple, dict[int, Record]], rule: str, setting: str) -> bool:
    for frozen in (False, True):
        for record in groups.get((rule, setting, frozen), {}).values():
            spec = record.spec
            return spec is not None and spec.penalty == 0 and not record.facts.inexact_taps
    return False


def _label(record: Record) -> str:
    spec, parts = record.spec, [record.facts.rule.label]
    if spec is None:
        return parts[0]
    if spec.credit_norm != "none":
        parts.append(f"norm {spec.credit_norm}")
    if spec.penalty:
        parts.append(f"λ {spec.penalty:g}")
    if record.facts.rule.variant:
        parts.append(record.facts.rule.variant)
    return ", ".join(parts)


def _setting_label(record: Record) -> str:
    spec = record.spec
    if spec is None:
        return "watched model"
    usual = {f.name: f.default for f in fields(RunSpec)}
    names = ("optimiser", "lr", "schedule", "weight_decay", "batch", "precision")
    unusual = [f"{n} {v}" for n in names if (v := getattr(spec, n)) and v != usual[n]]
    task, net = _with_options(spec.task, spec.task_options), _with_options(spec.net, spec.net_options)
    return " · ".join([task, net, f"{spec.epochs} epoch{'s' * (spec.epochs != 1)}", *unusual])


def _with_options(name: str, options: Mapping[str, object]) -> str:
    return f"{name} ({', '.join(f'{k} {v}' for k, v in options.items())})" if options else name
