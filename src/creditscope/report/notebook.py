"""What notebooks show of a snapshot, an audit, a scope or runs: pieces of the report, with neither script nor files."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from markupsafe import Markup

from creditscope.auditing import Audit, Thresholds
from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.checks import what_to_do
from creditscope.auditing.columns import METHODS, OF_WORD, Column
from creditscope.auditing.strip import lay_out, make_strip, write_key
from creditscope.plots._quantities import title
from creditscope.record import Record, Snapshot
from creditscope.record.flat import tabulate_taps
from creditscope.report import tables
from creditscope.report.build import Material, Report, build_report, judge_records
from creditscope.report.colours import diverging, sequential
from creditscope.report.history import SYMBOLS
from creditscope.report.page import make_environment, read_source
from creditscope.text import DASH, count, visible

MOST_SETTINGS = 3
"""That are shown; the others are counted."""
MOST_RECORDS = 500
"""That are judged for a look at runs."""
STRIP_WIDTH = 110
"""Letters of a strip, with its bar; what is wider is scrolled."""
TONES = {"✓": "good", "✗": "bad", "?": "open", "○": "lack", "–": "soft"}
"""Colours of verdicts, by their signs."""
COLUMNS = [METHODS[name] for name in ("accuracy", "frozen_own", "frozen_bp", "trained_depth", "gamma_inexact", "seeds")]
"""Beside method, verdict and reason, where there is anything to say."""
LEVELS = {"d": diverging(), "s": sequential()}
_LEVEL = re.compile(r'class="([ds])(\d+)"')
"""A colour of a heatmap, by its class in the page's style."""


def show_snapshot(snapshot: Snapshot) -> str:
    """Its headline, and a row of numbers per tap."""
    return _render("snapshot", table=tabulate_taps(snapshot))


def show_audit(audit: Audit, name: str = "", problems: Sequence[str] = ()) -> str:
    """Verdicts with reasons, layers over time, and what to do: of the first settings."""
    shown = list(dict.fromkeys(m.setting for m in audit.methods))
    kept = [i for i, m in enumerate(audit.methods) if m.setting in shown[:MOST_SETTINGS]]
    part = replace(audit, methods=tuple(audit.methods[i] for i in kept), groups=tuple(audit.groups[i] for i in kept))
    records = {id(record): record for group in part.groups for record in group.records}
    material = Material("", tuple(records.values()), audit.limits, part, (*problems, *audit.problems))
    more = len(shown) - MOST_SETTINGS
    return _render("judged", report=build_report(material), answer=tables.answer(audit), name=name, more=more)


def show_records(records: Sequence[Record], name: str, problems: Sequence[str] = ()) -> str:
    """The same of records that are judged here; where that cannot be, or takes long, their name alone."""
    if len(records) > MOST_RECORDS or not records:
        return _render("named", name=name, problems=problems)
    found = judge_records(list(records), "", Thresholds(), [])
    if found.audit is None:
        return _render("named", name=name, problems=(*problems, *found.problems))
    return show_audit(found.audit, name, problems)


def _render(macro: str, **given: Any) -> str:
    return str(getattr(_macros(), macro)(**given))


@cache
def _macros() -> Any:
    environment = make_environment()
    environment.filters["still"] = _still
    environment.globals |= {
        "of_word": OF_WORD,
        "tones": TONES,
        "symbols": SYMBOLS,
        "title": title,
        "count": count,
        "told": _told,
        "remedies": _remedies,
        "strips": _strips,
        "key": write_key(()),
        "ramp": lambda letter: ",".join(LEVELS[letter]),
        "visible": visible,
        "zip": zip,
        "tables": tables,
        "because": METHODS["because"],
        "style": read_source(environment, "notebook.css"),
    }
    return environment.get_template("notebook.html").module


def _told(methods: Sequence[MethodAudit]) -> list[Column]:
    """Columns in which some method has a number; one seed is not counted."""
    silent = {"seeds": "1"}
    return [c for c in COLUMNS if any(c.cell(m) not in (DASH, silent.get(c.name)) for m in methods)]


def _strips(methods: Sequence[MethodAudit]) -> Iterator[list[tuple[str, str]]]:
    """Lines of pieces, each with its tone."""
    for lines in lay_out([make_strip(m) for m in methods], STRIP_WIDTH):
        yield from ([(p.text, TONES.get(OF_WORD.get(p.sign, p.sign), "")) for p in line] for line in lines)


def _remedies(report: Report) -> list[str]:
    """What to do about checks that fired, once a code."""
    return what_to_do(f for part in report.settings for m in part.methods for f in m.found.findings)


def _still(drawing: Markup) -> Markup:
    """A heatmap whose colours are its own, not those of a page."""
    return Markup(_LEVEL.sub(lambda found: f'stroke="{LEVELS[found[1]][int(found[2])]}"', drawing))
