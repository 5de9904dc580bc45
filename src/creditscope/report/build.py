"""Put the sections together: from an audit and its records to everything the page shows."""

from collections import defaultdict
from datetime import UTC, datetime
from importlib.metadata import version

from creditscope.auditing import Thresholds
from creditscope.auditing.decision import Decision
from creditscope.memory import collection_paused
from creditscope.report import checks, comparison, layers, missing, overview, provenance
from creditscope.report.decisions import decision_table
from creditscope.report.gather import Material
from creditscope.report.grids import Grid, make_grid
from creditscope.report.model import CardText, Report, Setting
from creditscope.report.trajectories import draw_trajectories


def build_report(
    material: Material, *, against: Material | None = None, limits: Thresholds | None = None, made: str = ""
) -> Report:
    """The page of one folder, with what changed against another if one is given."""
    audit = material.audit
    with collection_paused():
        grids = [make_grid(method) for method in audit.groups] if audit else []
        settings = _settings(material, grids)
    return Report(
        folder=material.folder,
        made=made or datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("creditscope"),
        facts=overview.describe(material.records, audit),
        answer=overview.answer(audit),
        settings=settings,
        checks=checks.check_facts(limits or Thresholds()),
        versions=provenance.list_origins(material.records),
        notes=audit.notes if audit else (),
        skipped=missing.skipped_checks(audit),
        problems=material.problems,
        changed_limits=checks.changed_limits(limits or Thresholds()),
        comparison=comparison.compare(material, against) if against else None,
        data=_data(settings, grids),
    )


def _settings(material: Material, grids: list[Grid]) -> tuple[Setting, ...]:
    if material.audit is None:
        return ()
    members: dict[str, list[int]] = {}
    for key, found in enumerate(material.audit.methods):
        members.setdefault(found.setting, []).append(key)
    decisions, cards = _decisions_by_method(material), provenance.write_cards(material)
    return tuple(
        _setting(place, name, keys, material, grids, decisions, cards)
        for place, (name, keys) in enumerate(members.items())
    )


def _decisions_by_method(material: Material) -> list[list[Decision]]:
    """The rows over seeds of each method, in the order of the audit."""
    assert material.audit is not None
    rows = [row for row in material.audit.decisions() if row.seed is None]
    each = len(rows) // len(material.audit.methods)
    return [rows[i : i + each] for i in range(0, len(rows), each)]


def _setting(
    place: int,
    name: str,
    keys: list[int],
    material: Material,
    all_grids: list[Grid],
    decisions: list[list[Decision]],
    cards: list[CardText],
) -> Setting:
    audit = material.audit
    assert audit is not None
    found, methods, grids = ([items[k] for k in keys] for items in (audit.methods, audit.groups, all_grids))
    scales = layers.make_scales(grids)
    bars = layers.legends(scales, grids)
    shown = [bar.quantity for bar in bars]
    return Setting(
        key=place,
        name=name,
        rows=tuple(overview.verdict_row(k, audit.methods[k]) for k in keys),
        counts=overview.count_words(found),
        decisions=decision_table(keys, [decisions[k] for k in keys]),
        legends=bars,
        layers=tuple(
            layers.layer_row(k, audit.methods[k], audit.groups[k], all_grids[k], scales, shown) for k in keys
        ),
        epochs=tuple(sorted({epoch for grid in grids for epoch in grid.epochs})),
        charts=draw_trajectories(methods),
        checks=tuple((k, audit.methods[k].method, checks.check_rows(audit.methods[k])) for k in keys),
        spec=provenance.spec_facts(methods[0]),
        provenance=tuple(provenance.provenance_row(method) for method in methods),
        cards=tuple(cards[k] for k in keys),
    )


def _data(settings: tuple[Setting, ...], grids: list[Grid]) -> dict:
    """What the script reads: settings with their epochs, methods with their grids."""
    methods = defaultdict(dict)
    for setting in settings:
        for row in setting.rows:
            methods[row.key] = grids[row.key].to_dict(row.method, setting.key)
    return {
        "settings": [{"epochs": s.epochs, "methods": [row.key for row in s.rows]} for s in settings],
        "methods": [methods[key] for key in range(len(grids))],
    }
