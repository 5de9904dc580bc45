"""From a folder of records to everything the page shows; whatever is missing becomes words, not an error."""

import json
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from markupsafe import Markup

from creditscope.auditing import Audit, MethodAudit, Thresholds, audit
from creditscope.auditing.card import make_card
from creditscope.auditing.decisions import Decision
from creditscope.auditing.methods import change_records, read_methods
from creditscope.errors import CreditscopeError
from creditscope.record import Record, open_records
from creditscope.record.load import collection_paused
from creditscope.record.timeline import along_axis, axis_of
from creditscope.report import tables
from creditscope.report.colours import Scale, rule_classes
from creditscope.report.comparison import Comparison, compare, name_apart
from creditscope.report.curves import draw_curves
from creditscope.report.history import LayerHistory, choose_epochs, trace_layers
from creditscope.report.layers import FinalValues, draw_heatmap, final_values, make_scales
from creditscope.report.rows import Row, list_rows

MANY_METHODS, MOST_COLUMNS, FEWER_COLUMNS = 100, 24, 12
"""A page of more methods has fewer epochs of each, so that it can still be mailed."""
MOST_BYTES, MOST_ROW_BYTES, MOST_ROWS = 4_600_000, 3_000_000, 2_000
"""What rows and, packed, all that they open may take; what rows alone may; and how many there are at most."""
TAG_BYTES, IN_LETTERS = 900, 4 / 3
"""Packed, of what stands around a method's words; and of letters that a page can hold, per byte."""
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
    """Everything about one method, which its row opens."""

    row: Row
    found: MethodAudit
    decisions: list[Decision]
    """Over seeds, the whole protocol's first."""
    history: LayerHistory
    heats: list[Markup | None]
    """Of each quantity that the setting shows; None where it was not measured."""
    final: FinalValues
    provenance: tuple[str, ...]
    card: str


@dataclass(frozen=True, kw_only=True)
class SettingPart:
    """Everything about one task, net and recipe."""

    name: str
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


@dataclass(frozen=True, kw_only=True)
class Report:
    """The page."""

    material: Material
    """Its methods have names that tell them apart."""
    against: Material | None
    settings: list[SettingPart]
    """Those that there is room for: their methods can be opened."""
    rows: list[Row]
    """Methods that have a row."""
    counted: int
    """Methods for which there is none."""
    origins: list[tuple[str, ...]]
    """What the runs were made with: key, versions and devices, number of runs."""
    comparison: Comparison | None


def build_report(material: Material, *, against: Material | None = None) -> Report:
    """The page of one folder, with what changed against another if one is given."""
    origins, named = tables.list_origins(material.records), name_apart(material.audit) if material.audit else None
    titles = [m.setting for m in material.audit.methods] if material.audit else []
    every = list_rows(named, material.folder, titles) if named else []
    rows = _rows_with_room(every)
    return Report(
        material=replace(material, audit=named),
        against=against,
        settings=_settings(named, rows, origins) if named else [],
        rows=rows,
        counted=len(every) - len(rows),
        origins=origins,
        comparison=compare(material.audit, against.audit) if against else None,
    )


def _rows_with_room(rows: list[Row]) -> list[Row]:
    """The first ones, but at least one."""
    taken = list(accumulate(row.weight for row in rows[:MOST_ROWS]))
    return rows[: max(1, bisect_right(taken, MOST_ROW_BYTES))]


def _settings(audit: Audit, rows: list[Row], origins: list[tuple[str, ...]]) -> list[SettingPart]:
    """Those that there is room for, in the order of the audit: first chosen is what leaves something open."""
    members: dict[str, list[int]] = {}
    for key, row in enumerate(rows):
        members.setdefault(row.found.setting, []).append(key)
    colours = rule_classes(group.facts.rule.name for group in audit.groups)
    columns = MOST_COLUMNS if len(audit.groups) <= MANY_METHODS else FEWER_COLUMNS
    drawn, left = {}, MOST_BYTES - sum(row.weight for row in rows)
    for name in sorted(members, key=lambda name: all(rows[k].found.verdict.word in PLAIN for k in members[name])):
        with collection_paused():
            part = _draw_setting(audit, [rows[key] for key in members[name]], members[name], columns, colours, origins)
        left -= weigh(part)
        if left < 0 and drawn:
            break
        drawn[name] = part
    return [drawn[name] for name in members if name in drawn]


def _draw_setting(
    audit: Audit,
    rows: list[Row],
    keys: list[int],
    columns: int,
    colours: Mapping[str, str],
    origins: list[tuple[str, ...]],
) -> SettingPart:
    """One setting; its records are read here, and let go."""
    read = read_methods(audit.groups[key] for key in keys)
    axis, groups = axis_of(read[0].first), change_records(read, along_axis)
    judged = replace(audit, methods=tuple(row.found for row in rows), groups=tuple(groups))
    decisions, epochs = tables.decisions_by_method(judged), choose_epochs(groups, columns)
    histories = [trace_layers(group, epochs) for group in groups]
    scales, notes = make_scales(histories)
    notes *= not rows[0].found.network  # of a cosine that nobody asks for
    methods = [
        MethodPart(
            row=row,
            found=row.found,
            decisions=decided,
            history=history,
            heats=[
                draw_heatmap(history, quantity, scale, key=row.id, method=group.label)
                if quantity in history.means
                else None
                for quantity, scale in scales.items()
            ],
            final=final_values(row.found, group),
            provenance=tables.provenance_row(group, origins),
            card=make_card(judged, place).to_markdown(),
        )
        for place, (row, group, history, decided) in enumerate(zip(rows, groups, histories, decisions, strict=True))
    ]
    return SettingPart(
        name=rows[0].found.setting,
        methods=methods,
        scales=scales,
        layer_notes=notes,
        axis=axis,
        epochs=sorted({epoch for history in histories for epoch in history.epochs}),
        charts=draw_curves(groups, colours, axis),
        spec=tables.spec_facts(groups[0]),
    )


def weigh(part: SettingPart) -> int:
    """About the bytes that a setting takes on the page: drawings, data and words packed, tags by experience."""
    drawings = [svg for _, svg in part.charts] + [svg for m in part.methods for svg in m.heats if svg]
    data = [json.dumps(m.history.to_dict(), separators=(",", ":")) for m in part.methods]
    words = [m.card for m in part.methods] + [f.message for m in part.methods for f in m.found.findings]
    words += [cell for m in part.methods for row in m.final.rows for cell in row]
    packed = zlib.compress("".join((*drawings, *data, *words)).encode(errors="replace"), level=6)
    return round(IN_LETTERS * (len(packed) + TAG_BYTES * len(part.methods)))
