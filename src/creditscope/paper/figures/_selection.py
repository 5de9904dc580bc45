"""Which runs a figure draws: complete ones of one setting, on the seeds that all its rules share."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.plots._quantities import take_log
from creditscope.record import Facts, Record, RunSpec
from creditscope.record.spec import MEASURING_FIELDS
from creditscope.record.table import richest
from creditscope.rule_styles import Look, rule_looks
from creditscope.text import name_all

VARIANT_FIELDS = ("rule_options", "rule_source", "credit_norm")
FREE_FIELDS = ("rule", "seed", *VARIANT_FIELDS, *MEASURING_FIELDS)
"""Fields of a spec that may differ between the records of one figure."""


@dataclass(frozen=True)
class Group:
    """The drawn runs of one rule, one per shared seed; `gap` says why there are none."""

    rule: str
    style: Look
    records: tuple[Record, ...]
    gap: str = ""

    @property
    def facts(self) -> Facts:
        """The same for every seed."""
        return self.records[0].facts

    def per_tap(self, name: str) -> np.ndarray:
        """A measure of every tap, (seeds, taps); NaN where it was not measured."""
        return np.array([getattr(record.last.taps, name) for record in self.records], dtype=float)

    def per_run(self, name: str) -> np.ndarray:
        """A measure of the whole net, (seeds,); NaN where it was not measured."""
        return np.array([getattr(record.last, name) for record in self.records], dtype=float)

    def log_gradient(self) -> np.ndarray:
        """log10 of the median ‖g_l‖, (seeds, taps); NaN for an exact zero too."""
        return take_log(self.per_tap("g_norm"))


@dataclass(frozen=True)
class Selection:
    """All that is drawn; `notes` say what was left out."""

    groups: tuple[Group, ...]
    seeds: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def drawn(self) -> list[Group]:
        """The rules that are no gap."""
        return [group for group in self.groups if group.records]

    @property
    def facts(self) -> Facts:
        """Taps, shapes and chance, the same for all."""
        return self.drawn[0].facts


def select_runs(records: Sequence[Record], *, rules: Sequence[str]) -> Selection:
    """The complete runs of `rules` on the seeds they share, with notes on what was left out."""
    wanted = [(r.spec, r) for r in records if r.spec and not r.spec.frozen and r.spec.penalty == 0]
    wanted = [(spec, record) for spec, record in wanted if spec.train_last == -1]  # no rung of the depth ladder
    wanted = [(spec, record) for spec, record in wanted if spec.rule in rules]
    if not wanted:
        raise CreditscopeError(
            f"Expected records of trained, unpenalised runs of the rules {', '.join(rules)}, but got none "
            f"among {len(records)} records. Run them first or pass other rules."
        )
    kept = {id(record) for record in richest([record for _, record in wanted])}
    wanted = [(spec, record) for spec, record in wanted if id(record) in kept]
    require_one_setting([spec for spec, _ in wanted])
    styles = rule_looks(rules, labels={spec.rule: r.facts.rule.label for spec, r in wanted})
    usable: dict[str, dict[int, Record]] = {rule: {} for rule in rules}
    gaps, notes = dict.fromkeys(rules, "not on record"), []
    for spec, record in wanted:
        if record.provenance.status == "complete":
            usable[spec.rule][spec.seed] = record
        else:
            gaps[spec.rule] = status = record.provenance.status
            notes.append(f"{styles[spec.rule].label}, seed {spec.seed}: {status}, left out.")
    seeds, left_out = _share_seeds({rule: runs for rule, runs in usable.items() if runs})
    notes += [f"Left out, as not every rule has it: {name_all('seed', left_out)}."] if left_out else []
    groups = []
    for rule, runs in usable.items():
        chosen = tuple(runs[seed] for seed in seeds) if runs else ()
        groups.append(Group(rule, styles[rule], chosen, gap="" if runs else gaps[rule]))
        notes += _note_missing(groups[-1])
    return Selection(tuple(groups), seeds, tuple(notes))


def require_one_setting(
    wanted: Sequence[RunSpec], *, free: Sequence[str] = FREE_FIELDS, variants: Sequence[str] = VARIANT_FIELDS
) -> None:
    """Refuse records that differ in fields that are not `free`, or one rule in several `variants`."""
    specs = [asdict(spec) for spec in wanted]
    differing = _differences(specs, fields=[name for name in specs[0] if name not in free])
    if differing:
        name, values = next(iter(differing.items()))
        raise CreditscopeError(
            f"Expected records of one setting, but they differ in {_list_values(differing)}. "
            f"Pass the records of one setting only, for example those with {name} = {values[0]}."
        )
    for rule in dict.fromkeys(spec["rule"] for spec in specs):
        differing = _differences([spec for spec in specs if spec["rule"] == rule], fields=variants)
        if differing:
            raise CreditscopeError(
                f"Expected one variant of rule {rule!r}, but its records differ in {_list_values(differing)}. "
                "Pass the records of one variant only."
            )


def _differences(specs: list[dict], *, fields: Sequence[str]) -> dict[str, list]:
    """Fields with several values; options are compared one by one ("net_options.width")."""
    flat: list[dict[str, object]] = [{} for _ in specs]
    for values, spec in zip(flat, specs, strict=True):
        for field in fields:
            options = spec[field] if isinstance(spec[field], dict) else None
            values |= {field: spec[field]} if options is None else {f"{field}.{k}": v for k, v in options.items()}
    names = dict.fromkeys(name for values in flat for name in values)
    found = {name: list(dict.fromkeys(values.get(name, "absent") for values in flat)) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


def _list_values(differing: dict[str, list]) -> str:
    return "; ".join(f"{name} ({', '.join(map(str, values))})" for name, values in differing.items())


def _share_seeds(usable: dict[str, dict[int, Record]]) -> tuple[tuple[int, ...], list[int]]:
    """Seeds every rule has, and the others."""
    if not usable:
        raise CreditscopeError(
            "Expected at least one complete run, but got diverged or unfinished ones only. Train others."
        )
    first, *others = usable.values()
    shared = set(first).intersection(*others)
    if not shared:
        held = "; ".join(f"{rule}: {', '.join(map(str, sorted(runs)))}" for rule, runs in usable.items())
        raise CreditscopeError(
            f"Expected at least one seed that every rule has, but got {held}. "
            "Run the missing seeds or pass fewer rules."
        )
    return tuple(sorted(shared)), sorted(set(first).union(*others) - shared)


def _note_missing(group: Group) -> list[str]:
    """The rule as a whole, or one note per drawn quantity that lacks values."""
    if group.gap:
        return [f"{group.style.label}: {group.gap}."]
    measures = {"Γ": group.per_run("gamma"), "accuracy": group.per_run("accuracy")}
    measures |= {"cosine": group.per_tap("cos"), "‖g‖ above 0": group.log_gradient()}
    return [
        f"{group.style.label}: no {name} for {np.isnan(values).sum()} of {values.size} points."
        for name, values in measures.items()
        if np.isnan(values).any()
    ]


def spec_of(record: Record) -> RunSpec:
    """The spec of a selected record."""
    assert record.spec is not None  # select_runs takes no others
    return record.spec
