"""Put the sections together: from an audit and its records to everything the page shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

import creditscope
from creditscope.auditing import Audit
from creditscope.auditing.decisions import Decision
from creditscope.plots._quantities import is_size
from creditscope.record.load import collection_paused
from creditscope.report import checks, comparison, layers, overview, provenance
from creditscope.report.colours import Scale, rule_classes
from creditscope.report.curves import draw_curves
from creditscope.report.decisions import decision_table
from creditscope.report.gather import Material
from creditscope.report.history import SYMBOLS, LayerHistory, choose_epochs, most_columns, trace_layers
from creditscope.report.model import CheckFacts, CheckRow, Comparison, DecisionTable, Row
from creditscope.report.names import name_apart, short_names


@dataclass(frozen=True, kw_only=True)
class SettingPart:
    """Everything about one task, net and recipe. A method goes by its key, its place in the audit."""

    key: int
    name: str
    short: str
    """Task and net, without options that nearly all settings of the page share."""
    rows: tuple[Row, ...]
    counts: tuple[tuple[str, str, int], ...]
    """Symbol, word and number of methods."""
    decisions: DecisionTable
    scales: Mapping[str, Scale]
    """Of the quantities that have heatmaps."""
    layer_notes: list[str]
    """Which quantities have none, and why."""
    layers: tuple[layers.LayerRow, ...]
    epochs: tuple[int, ...]
    charts: tuple[tuple[str, Markup], ...]
    """Title and drawing."""
    checks: tuple[tuple[int, str, tuple[CheckRow, ...]], ...]
    spec: tuple[tuple[str, str], ...]
    provenance: tuple[tuple[str, ...], ...]
    cards: tuple[tuple[int, str, str], ...]
    """Key, name and card of the methods whose card the page has room for."""

    @property
    def rest(self) -> str:
        """The recipe."""
        return " · ".join(self.name.split(" · ")[2:])


@dataclass(frozen=True, kw_only=True)
class Report:
    """The page."""

    folder: str
    made: str
    version: str
    facts: tuple[tuple[str, str], ...]
    answer: str
    settings: tuple[SettingPart, ...]
    checks: tuple[CheckFacts, ...]
    origins: tuple[tuple[str, ...], ...]
    """What the runs were made with: key, versions and devices, number of runs."""
    notes: tuple[str, ...]
    skipped: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Code, reason, methods."""
    problems: tuple[str, ...]
    changed_limits: tuple[str, ...]
    comparison: Comparison | None
    data: dict[str, Any] = field(repr=False)
    """What the script looks cells up in."""

    @property
    def cards_left_out(self) -> int:
        """Methods whose card the page has no room for."""
        return sum(len(setting.rows) - len(setting.cards) for setting in self.settings)


def build_report(material: Material, *, against: Material | None = None) -> Report:
    """The page of one folder, with what changed against another if one is given."""
    audit = name_apart(material.audit) if material.audit else None
    origins = provenance.list_origins(material.records)
    with collection_paused():
        histories = _trace(audit) if audit else []
        settings = _settings(audit, histories, [origin[1:-1] for origin in origins]) if audit else ()
    return Report(
        folder=material.folder,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=creditscope.__version__,
        facts=overview.describe(material.records, audit),
        answer=overview.answer(audit),
        settings=settings,
        checks=checks.check_facts(material.limits),
        origins=origins,
        notes=audit.notes if audit else (),
        skipped=checks.skipped_checks(audit),
        problems=material.problems,
        changed_limits=checks.changed_limits(material.limits),
        comparison=comparison.compare(material, against) if against else None,
        data=_data(settings, histories),
    )


def _by_setting(audit: Audit) -> dict[str, list[int]]:
    """The keys of the methods of each setting."""
    members: dict[str, list[int]] = {}
    for key, found in enumerate(audit.methods):
        members.setdefault(found.setting, []).append(key)
    return members


def _trace(audit: Audit) -> list[LayerHistory]:
    """Of every method, with the columns of its setting."""
    most = most_columns(len(audit.groups))
    epochs = {
        setting: choose_epochs([audit.groups[key] for key in keys], most)
        for setting, keys in _by_setting(audit).items()
    }
    return [trace_layers(method, epochs[method.setting]) for method in audit.groups]


def _settings(audit: Audit, histories: list[LayerHistory], origins: list[tuple[str, ...]]) -> tuple[SettingPart, ...]:
    members, decisions, cards = _by_setting(audit), _decisions_by_method(audit), provenance.write_cards(audit)
    short, colours = short_names(list(members)), rule_classes(group.facts.rule.name for group in audit.groups)
    found = []
    for place, (name, keys) in enumerate(members.items()):
        judged, methods = [(key, audit.methods[key]) for key in keys], [audit.groups[key] for key in keys]
        own = [histories[key] for key in keys]
        scales, notes = layers.make_scales(own)
        rows = zip(judged, methods, own, strict=True)
        found.append(
            SettingPart(
                key=place,
                name=name,
                short=short[name],
                rows=tuple(overview.verdict_row(key, m) for key, m in judged),
                counts=overview.count_words([m for _, m in judged]),
                decisions=decision_table([decisions[key] for key in keys]),
                scales=scales,
                layer_notes=notes,
                layers=tuple(layers.layer_row(*m, method, history, scales) for m, method, history in rows),
                epochs=tuple(sorted({epoch for history in own for epoch in history.epochs})),
                charts=draw_curves(methods, colours),
                checks=tuple((key, m.method, checks.check_rows(m)) for key, m in judged),
                spec=provenance.spec_facts(methods[0]),
                provenance=tuple(provenance.provenance_row(method, origins) for method in methods),
                cards=tuple((key, m.method, cards[key]) for key, m in judged if key in cards),
            )
        )
    return tuple(found)


def _decisions_by_method(audit: Audit) -> list[list[Decision]]:
    """The rows over seeds of each method."""
    rows = [row for row in audit.decisions() if row.seed is None]
    each = len(rows) // len(audit.methods)
    return [rows[i : i + each] for i in range(0, len(rows), each)]


def _data(settings: tuple[SettingPart, ...], histories: list[LayerHistory]) -> dict[str, Any]:
    """What the script reads: quantities, settings with their epochs, methods with their numbers."""
    rows = {row.key: (row.method, setting.key) for setting in settings for row in setting.rows}
    return {
        "quantities": {name: {"symbol": symbol, "size": is_size(name)} for name, symbol in SYMBOLS.items()},
        "settings": [{"epochs": s.epochs, "methods": [row.key for row in s.rows]} for s in settings],
        "methods": [history.to_dict(*rows[key]) for key, history in enumerate(histories)],
    }
