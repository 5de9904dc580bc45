"""Put the sections together: from an audit and its records to everything the page shows."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import creditscope
from creditscope.auditing import Audit
from creditscope.auditing.decisions import Decision
from creditscope.memory import collection_paused
from creditscope.report import checks, comparison, layers, overview, provenance
from creditscope.report.colours import rule_classes
from creditscope.report.decisions import decision_table
from creditscope.report.gather import Material
from creditscope.report.grids import Grid, choose_epochs, make_grid, most_columns
from creditscope.report.identity import name_apart, short_names
from creditscope.report.model import CardText, Report, Setting
from creditscope.report.trajectories import draw_trajectories


def build_report(material: Material, *, against: Material | None = None) -> Report:
    """The page of one folder, with what changed against another if one is given."""
    named = replace(material, audit=name_apart(material.audit)) if material.audit else material
    audit = named.audit
    with collection_paused():
        grids = _grids(audit) if audit else []
        settings = _settings(named, grids)
    return Report(
        folder=material.folder,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=creditscope.__version__,
        facts=overview.describe(material.records, audit),
        answer=overview.answer(audit),
        settings=settings,
        checks=checks.check_facts(material.limits),
        origins=provenance.list_origins(material.records),
        notes=audit.notes if audit else (),
        skipped=checks.skipped_checks(audit),
        problems=material.problems,
        changed_limits=checks.changed_limits(material.limits),
        comparison=comparison.compare(material, against) if against else None,
        data=_data(settings, grids),
    )


def _grids(audit: Audit) -> list[Grid]:
    """Of every method, with the columns of its setting."""
    most, members = most_columns(len(audit.groups)), {}
    for method in audit.groups:
        members.setdefault(method.setting, []).append(method)
    epochs = {setting: choose_epochs(methods, most) for setting, methods in members.items()}
    return [make_grid(method, epochs[method.setting]) for method in audit.groups]


@dataclass(frozen=True)
class _Parts:
    """What is made once for all settings; lists are in the order of the audit."""

    audit: Audit
    grids: list[Grid]
    decisions: list[list[Decision]]
    cards: list[CardText]
    origins: list[tuple[str, ...]]
    colours: dict[str, str]


def _settings(material: Material, grids: list[Grid]) -> tuple[Setting, ...]:
    audit = material.audit
    if audit is None:
        return ()
    members: dict[str, list[int]] = {}
    for key, found in enumerate(audit.methods):
        members.setdefault(found.setting, []).append(key)
    origins = [row[1:-1] for row in provenance.list_origins(material.records)]
    colours = rule_classes(group.facts.rule.name for group in audit.groups)
    parts = _Parts(audit, grids, _decisions_by_method(audit), provenance.write_cards(audit), origins, colours)
    short = short_names(list(members))
    return tuple(_setting(i, name, short[name], keys, parts) for i, (name, keys) in enumerate(members.items()))


def _decisions_by_method(audit: Audit) -> list[list[Decision]]:
    """The rows over seeds of each method."""
    rows = [row for row in audit.decisions() if row.seed is None]
    each = len(rows) // len(audit.methods)
    return [rows[i : i + each] for i in range(0, len(rows), each)]


def _setting(place: int, name: str, short: str, keys: list[int], parts: _Parts) -> Setting:
    found = {key: parts.audit.methods[key] for key in keys}
    methods = {key: parts.audit.groups[key] for key in keys}
    grids = [parts.grids[key] for key in keys]
    scales = layers.make_scales(grids)
    bars = layers.legends(scales, grids)
    shown = [bar.quantity for bar in bars]
    return Setting(
        key=place,
        name=name,
        short=short,
        rows=tuple(overview.verdict_row(k, m) for k, m in found.items()),
        counts=overview.count_words(list(found.values())),
        decisions=decision_table([parts.decisions[k] for k in keys]),
        legends=bars,
        layer_notes=layers.say_left_out(grids, shown),
        layers=tuple(layers.layer_row(k, found[k], methods[k], parts.grids[k], scales, shown) for k in keys),
        epochs=tuple(sorted({epoch for grid in grids for epoch in grid.epochs})),
        charts=draw_trajectories(list(methods.values()), parts.colours),
        checks=tuple((k, found[k].method, checks.check_rows(found[k])) for k in keys),
        spec=provenance.spec_facts(methods[keys[0]]),
        provenance=tuple(provenance.provenance_row(m, parts.origins) for m in methods.values()),
        cards=tuple(parts.cards[k] for k in keys),
    )


def _data(settings: tuple[Setting, ...], grids: list[Grid]) -> dict[str, Any]:
    """What the script reads: settings with their epochs, methods with their grids."""
    rows = {row.key: (row.method, setting.key) for setting in settings for row in setting.rows}
    return {
        "settings": [{"epochs": s.epochs, "methods": [row.key for row in s.rows]} for s in settings],
        "methods": [grid.to_dict(*rows[key]) for key, grid in enumerate(grids)],
    }
