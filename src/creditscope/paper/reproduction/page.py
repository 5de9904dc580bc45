"""The page: what each setting gives jointly, every published number under all, artefacts, and what must hold."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from creditscope.paper.reproduction._cells import say_others, say_ours, say_published, say_under
from creditscope.paper.reproduction._settings import SETTINGS
from creditscope.paper.reproduction._shelf import Shelf, seeds_of
from creditscope.paper.reproduction.artefacts import list_artefacts
from creditscope.paper.reproduction.claims import list_claims
from creditscope.paper.reproduction.joint import Joint, Row, compare_settings, join, lead_lines
from creditscope.paper.reproduction.published import NOT_COMPARED, PUBLISHED, WHERE
from creditscope.record import Record
from creditscope.text import DASH, count

COMMAND = "creditscope reproduction --records results/paper --out docs/reproduction.md"
HEAD = """# Reproduction of published numbers

Made from records by `{command}`.
Nothing on this page is typed in by hand but the published numbers, which are only ever compared with.
"""
METHOD = Path(__file__).with_name("method.md").read_text(encoding="utf-8")
COLUMNS = ("quantity", "published", "n", *(s.title for s in SETTINGS), "ours, all seeds", "other conditions")


def render_page(records: Sequence[Record], derived: Sequence[Record] = ()) -> str:
    """The page as Markdown."""
    shelf = Shelf(records)
    rows = [compare_settings(published, shelf) for published in PUBLISHED]
    parts = [HEAD.format(command=COMMAND), _lead(join(rows)), METHOD]
    for part, found in groupby(rows, key=lambda row: row.published.part):
        together, apart = [], {}
        for row in found:
            (apart.setdefault(row.published.apart, []) if row.published.apart else together).append(row)
        text = f"## {part}\nSaid in: {WHERE[part]}.\n\n{_rows(together, shelf)}"
        for why, others in apart.items():
            text += f"\nNot like for like, and not counted ({why}):\n\n{_rows(others, shelf)}"
        parts.append(text)
    parts.append("## Not compared\n" + "".join(f"- {what}\n" for what in NOT_COMPARED))
    artefacts = [f"- **{title}.** {text}" for title, text in list_artefacts(shelf, derived).items()]
    parts.append("## Readings that are artefacts\n" + "\n".join(artefacts) + "\n")
    claims = [(c.text, c.answer, c.numbers) for c in list_claims(shelf)]
    parts.append(f"## What must hold\n{_table(('claim', 'holds', 'measured'), claims)}")
    parts.append(_provenance(shelf, derived))
    return "\n".join(parts)


def lead_of(records: Sequence[Record]) -> list[str]:
    """What the page leads with, in lines."""
    shelf = Shelf(records)
    return lead_lines(join([compare_settings(published, shelf) for published in PUBLISHED]), len(PUBLISHED))


def _lead(found: Joint) -> str:
    first, *_, last = lead_lines(found, len(PUBLISHED))
    tallies = {one.setting.name: one for one in found.tallies}
    shared = f"inside, of {found.shared} that all have"
    columns = ("setting", "is", shared, "inside, of those it has", "of them far off")
    lines = []
    for setting in SETTINGS:
        one = tallies.get(setting.name)
        counts = (f"{one.joint}", f"{one.inside} of {one.answered}", f"{one.far}") if one else ("not run", DASH, DASH)
        lines.append((f"**{setting.title}**" if one in found.best else setting.title, setting.words, *counts))
    text = f"{first} Inside are, at equal n:\n\n{_table(columns, lines)}\n"
    text += "Far off: accuracies that are inside a wide interval, and more than 1.5 pp away. "
    named = "; ".join(f"{p.quantity} ({say_published(p)})" for p in found.nowhere)
    return f"{text}{last}{f' Inside under none: {named}.' if named else ''}\n"


def _rows(rows: Sequence[Row], shelf: Shelf) -> str:
    return _table(COLUMNS, [_row(row, shelf) for row in rows])


def _row(row: Row, shelf: Shelf) -> tuple[str, ...]:
    published, n = row.published, max(found.n for found in row.under.values())
    first, *others = (row.under[s.name] for s in SETTINGS)
    same = [say_under(published, found) if published.depends else "the same" for found in others]
    cells = say_under(published, first), *same, say_ours(row, shelf), say_others(row, shelf)
    return (published.quantity, say_published(published), str(n), *cells)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |\n" for line in lines)


def _provenance(shelf: Shelf, derived: Sequence[Record]) -> str:
    read = list(shelf.read.values())
    text = f"## Where it comes from\n{count(len(shelf.records), 'run')} on record, {len(read):,} of them read here"
    text += f", on {count(len(seeds_of(read)), 'seed')}" if read else ""
    text += f"; {len(derived)} measurements of rescaled nets" if derived else ""
    if not read:
        return f"{text}.\n"
    facts = [("device", "device"), ("torch", "torch"), ("NumPy", "numpy"), ("Python", "python")]
    facts += [("creditscope", "creditscope"), ("commit", "commit")]
    listed = []
    for label, name in facts:
        values = sorted({str(getattr(r.provenance, name))[:40] for r in read} - {""})
        values = [value[:9] for value in values] if name == "commit" else values
        listed += [f"{label} {', '.join(values)}"] if values else []
    return f"{text}. {'; '.join(listed)}.\n" if listed else f"{text}.\n"
