"""From a folder of records to everything the page shows; whatever is missing becomes words, not an error."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from creditscope.auditing import Audit, MethodAudit, Thresholds, audit
from creditscope.auditing.decisions import Decision
from creditscope.auditing.methods import change_records, read_methods
from creditscope.errors import CreditscopeError
from creditscope.plots._quantities import is_size
from creditscope.record import Record, open_records
from creditscope.record.load import collection_paused
from creditscope.record.timeline import along_axis, axis_of
from creditscope.report import tables
from creditscope.report.colours import Scale, rule_classes
from creditscope.report.comparison import Comparison, compare, name_apart, short_names
from creditscope.report.curves import draw_curves
from creditscope.report.history import SYMBOLS, LayerHistory, choose_epochs, trace_layers
from creditscope.report.layers import FinalValues, draw_heatmap, final_values, make_scales

MANY_METHODS, MOST_COLUMNS, FEWER_COLUMNS = 100, 24, 9
"""A page of more methods has fewer epochs of each, so that it can still be mailed."""
MOST_BYTES, MOST_BRIEF = 4_000_000, 2_000
"""What drawings, tables and data may take together, and methods that have a line each beyond that."""
TAG_BYTES = 6_000
"""Of a method's rows in all tables."""
PLAIN = ("trustworthy", "walk back", "not judged", "healthy", "ill", "not trained yet")
"""Verdicts that leave nothing open: what they rest on is drawn last."""


@dataclass(frozen=True)
class Material:
    """What a folder holds."""

    folder: str
    records: tuple[Record, ...]
    limits: Thresholds
    """What it is judged by."""
    audit: Audit | None
    """None where nothing can be judged; `problems` then say why."""
    problems: tuple[str, ...]


def gather(folder: Path, limits: Thresholds, *, only: str = "", unsealed: bool = False) -> Material:
    """Records and verdicts of a folder, which must exist; altered records are read only if `unsealed`.

    `only`: of the settings that `Audit.only` keeps.
    """
    problems: list[str] = []
    records = open_records(folder, problems=problems, unsealed=unsealed)
    found = judge_records(records, str(folder), limits, problems)
    if not only or not found.audit:
        return found
    kept = found.audit.only(only)
    return replace(found, audit=kept, records=tuple({id(r): r for g in kept.groups for r in g.records}.values()))


def judge_records(records: list[Record], folder: str, limits: Thresholds, problems: list[str]) -> Material:
    """The same of records that were read; `problems` are what that told."""
    try:
        found = audit(records, limits=limits)
    except CreditscopeError as error:
        return Material(folder, tuple(records), limits, None, (*problems, str(error)))
    return Material(folder, tuple(records), limits, found, (*problems, *found.problems))


@dataclass(frozen=True, kw_only=True)
class MethodPart:
    """Everything about one method; its key, its place in the audit, names it everywhere on the page."""

    key: int
    found: MethodAudit
    decisions: list[Decision]
    """Over seeds, the whole protocol's first."""
    history: LayerHistory
    heats: list[Markup | None]
    """Of each quantity that the setting shows; None where it was not measured."""
    final: FinalValues
    provenance: tuple[str, ...]
    card: str | None
    """None where the page has no room for it."""


@dataclass(frozen=True, kw_only=True)
class SettingPart:
    """Everything about one task, net and recipe."""

    key: int
    name: str
    short: str
    """Task and net, without options that nearly all settings of the page share."""
    methods: list[MethodPart]
    scales: Mapping[str, Scale]
    """Of the quantities that have heatmaps."""
    layer_notes: list[str]
    """Which quantities have none, and why."""
    axis: str
    """What counts the snapshots: epoch, or step."""
    epochs: list[int]
    charts: list[tuple[str, Markup]]
    """Title and drawing."""
    spec: list[tuple[str, str]]

    @property
    def network(self) -> bool:
        """Whether it is a model that was watched under backprop."""
        return self.methods[0].found.network

    @property
    def recipe(self) -> str:
        return " · ".join(self.name.split(" · ")[2:])


@dataclass(frozen=True, kw_only=True)
class Report:
    """The page."""

    material: Material
    """Its methods have names that tell them apart."""
    against: Material | None
    settings: list[SettingPart]
    brief: list[tuple[str, list[MethodAudit]]]
    """Settings for whose methods the page has room for a line each."""
    counted: int
    """Methods for which it has none."""
    origins: list[tuple[str, ...]]
    """What the runs were made with: key, versions and devices, number of runs."""
    comparison: Comparison | None
    data: dict[str, Any] = field(repr=False)
    """What the script looks cells up in."""


def build_report(material: Material, *, against: Material | None = None) -> Report:
    """The page of one folder, with what changed against another if one is given."""
    origins, named = tables.list_origins(material.records), name_apart(material.audit) if material.audit else None
    settings = _settings(named, origins) if named else []
    drawn = {s.name for s in settings}
    others = [m for m in named.methods if m.setting not in drawn] if named else []
    brief = groupby(others[:MOST_BRIEF], key=lambda m: m.setting)
    methods = sorted(((part, s.key) for s in settings for part in s.methods), key=lambda found: found[0].key)
    data = {part.key: part.history.to_dict(part.found.method, setting) for part, setting in methods}
    return Report(
        material=replace(material, audit=named),
        against=against,
        settings=settings,
        brief=[(name, list(methods)) for name, methods in brief],
        counted=len(others[MOST_BRIEF:]),
        origins=origins,
        comparison=compare(material.audit, against.audit) if against else None,
        data={
            "quantities": {name: {"symbol": symbol, "size": is_size(name)} for name, symbol in SYMBOLS.items()},
            "settings": [
                {"axis": s.axis, "epochs": s.epochs, "methods": [part.key for part in s.methods]} for s in settings
            ],
            "methods": data if others else list(data.values()),
        },
    )


def _settings(audit: Audit, origins: list[tuple[str, ...]]) -> list[SettingPart]:
    """Those that there is room for, in the order of the audit: first chosen is what leaves something open."""
    members: dict[str, list[int]] = {}
    for key, method in enumerate(audit.methods):
        members.setdefault(method.setting, []).append(key)
    short, colours = short_names(list(members)), rule_classes(group.facts.rule.name for group in audit.groups)
    columns = MOST_COLUMNS if len(audit.groups) <= MANY_METHODS else FEWER_COLUMNS
    cards, drawn, left = tables.write_cards(audit), {}, MOST_BYTES
    for name in sorted(members, key=lambda name: all(audit.methods[k].verdict.word in PLAIN for k in members[name])):
        with collection_paused():
            part = _draw_setting(audit, name, members[name], columns, colours, cards, origins)
        left -= weigh(part)
        if left < 0 and drawn:
            break
        drawn[name] = part
    parts = [(name, drawn[name]) for name in members if name in drawn]
    return [replace(part, key=place, short=short[name]) for place, (name, part) in enumerate(parts)]


def _draw_setting(
    audit: Audit,
    name: str,
    keys: list[int],
    columns: int,
    colours: Mapping[str, str],
    cards: Mapping[int, str],
    origins: list[tuple[str, ...]],
) -> SettingPart:
    """One setting; its records are read here, and let go."""
    read = read_methods(audit.groups[key] for key in keys)
    axis, groups = axis_of(read[0].first), dict(zip(keys, change_records(read, along_axis), strict=True))
    judged = replace(audit, methods=tuple(audit.methods[key] for key in keys), groups=tuple(groups.values()))
    decisions = dict(zip(keys, tables.decisions_by_method(judged), strict=True))
    epochs = choose_epochs(list(groups.values()), columns)
    histories = {key: trace_layers(group, epochs) for key, group in groups.items()}
    scales, notes = make_scales(list(histories.values()))
    notes *= not audit.methods[keys[0]].network  # of a cosine that nobody asks for
    methods = [
        MethodPart(
            key=key,
            found=audit.methods[key],
            decisions=decisions[key],
            history=histories[key],
            heats=[
                draw_heatmap(histories[key], quantity, scale, key=key, method=group.label)
                if quantity in histories[key].means
                else None
                for quantity, scale in scales.items()
            ],
            final=final_values(audit.methods[key], group),
            provenance=tables.provenance_row(group, origins),
            card=cards.get(key),
        )
        for key, group in groups.items()
    ]
    return SettingPart(
        key=0,
        name=name,
        short="",
        methods=methods,
        scales=scales,
        layer_notes=notes,
        axis=axis,
        epochs=sorted({epoch for history in histories.values() for epoch in history.epochs}),
        charts=draw_curves(list(groups.values()), colours, axis),
        spec=tables.spec_facts(groups[keys[0]]),
    )


def weigh(part: SettingPart) -> int:
    """About the bytes that a setting takes on the page: drawings, data and words as they are, tags by experience."""
    drawings = [svg for _, svg in part.charts] + [svg for m in part.methods for svg in m.heats if svg]
    data = [json.dumps(m.history.to_dict("", 0), separators=(",", ":")) for m in part.methods]
    words = [m.card or "" for m in part.methods] + [f.message for m in part.methods for f in m.found.findings]
    words += [cell for m in part.methods for row in m.final.rows for cell in row]
    return sum(len(text.encode(errors="replace")) for text in (*drawings, *data, *words)) + TAG_BYTES * len(
        part.methods
    )
