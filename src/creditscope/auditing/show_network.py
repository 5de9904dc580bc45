"""The audit of a watched network for people: the word, what to do first, then its layers."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.checks import Finding, Outcome, all_checks, in_order
from creditscope.auditing.columns import ABOUT_MODULES, MODULES, OF_WORD
from creditscope.auditing.modules import ModuleRow
from creditscope.auditing.printing import STYLES, fit_tables, note, printed
from creditscope.text import DASH, number

MOST_ROWS = 40
"""Modules that are printed; of more, those that a check names, and as many others, evenly."""


def draw_network(m: MethodAudit, width: int) -> list[RenderableType]:
    """One network."""
    word, verdict = m.verdict.word, m.verdict
    accuracy = f" · accuracy {number(m.accuracy.mean, '.3f')}" if m.accuracy else ""
    head = Text.assemble(
        printed(f"{m.setting}: "),
        printed(f"{OF_WORD[word]} {word}", STYLES[word]),
        printed(f" · {verdict.meaning}{accuracy}"),
    )
    parts: list[RenderableType] = [head, *_numbered(m)]
    parts += [Padding(printed(line, style="dim"), (0, 0, 0, 2)) for line in _others(m)]
    if m.modules:
        shown = choose_rows(m.modules)
        columns = {c.heading: [c.cell(row) for row in shown] for c in MODULES.values() if c.name != "name"}
        columns = {name: cells for name, cells in columns.items() if any(cell not in ("", DASH) for cell in cells)}
        parts += [*fit_tables("module", [row.name for row in shown], columns, width)]
        left = f"{len(m.modules) - len(shown)} modules left out · " if len(shown) < len(m.modules) else ""
        parts.append(note(f"{left}{ABOUT_MODULES}"))
    return parts


def _numbered(m: MethodAudit) -> Iterator[RenderableType]:
    """What was found, in the order in which to look at it, and what to do."""
    remedies = {check.code: check.remedy for check in all_checks()}
    for place, finding in enumerate(in_order(m.findings), start=1):
        yield Padding(printed(f"{place}. {finding.code} {say_finding(finding)}", style="bold"), (0, 0, 0, 2))
        yield Padding(printed(f"{remedies[finding.code]} ({finding.page})"), (0, 0, 0, 5))


def say_finding(finding: Finding) -> str:
    """What it is, where, and what was found."""
    where = f", {finding.where}" if finding.where else ""
    return f"{finding.title}{where}: {finding.message}"


def _others(m: MethodAudit) -> list[str]:
    """Tips, what could not be looked at, and what passed, a line each."""
    lines = [f"tip {f.code}: {f.message}" for f in m.findings if f.outcome == Outcome.TIP]
    lines += [f"{f.code} not measured: {f.message}" for f in m.findings if f.outcome == Outcome.SKIPPED]
    passed = [f.code for f in m.findings if f.outcome == Outcome.PASSED]
    idle = [f.code for f in m.findings if f.outcome == Outcome.NOT_APPLICABLE]
    muted = [f.code for f in m.findings if f.outcome == Outcome.MUTED]
    named = (("passed", passed), ("nothing to ask of", idle), ("muted", muted))
    return [*lines, *filter(None, ["; ".join(f"{what} {', '.join(codes)}" for what, codes in named if codes)])]


def choose_rows(rows: Sequence[ModuleRow], most: int = MOST_ROWS) -> list[ModuleRow]:
    """All, or those that a check names and others evenly, first and last among them."""
    if len(rows) <= most:
        return list(rows)
    step = (len(rows) - 1) / (most - 1)
    kept = {round(i * step) for i in range(most)}
    return [row for i, row in enumerate(rows) if i in kept or row.codes]
