"""The page: a table of every published number beside ours, artefacts, and what must hold."""

from collections.abc import Sequence
from itertools import groupby

from creditscope.record import Record
from creditscope.reproduction._shelf import Shelf, seeds_of
from creditscope.reproduction._words import size
from creditscope.reproduction.artefacts import list_artefacts
from creditscope.reproduction.claims import list_claims
from creditscope.reproduction.compare import Alternative, Comparison, Published, compare
from creditscope.reproduction.published import NOT_COMPARED, PUBLISHED, WHERE
from creditscope.words import DASH, count, number

COMMAND = "creditscope reproduction --records results/paper --out docs/reproduction.md"
HEAD = """# Reproduction of published numbers

Made from records by `{command}`.
Nothing on this page is typed in by hand but the published numbers, which are only ever compared with.

**Measured** is a mean over all seeds on record with its 95 % t interval (ddof 1, over seeds; test set fixed), for sizes
a geometric mean. **Inside**: the published value lies in the 95 % prediction interval for a mean of the published
number m of seeds, mean ± t·sd·√(1/n + 1/m), with mean, sd and n measured, on log10 for sizes; the interval is given. A
published number stands for all that round to it, a range for all within it; where the number of seeds is not stated,
m = 1. A claim is inside if every seed bears it out. A wide interval makes it easy to be inside, so for accuracies it is
also said whether the mean is within 1.5 pp. Where a number is not inside, or an accuracy inside but not within 1.5 pp,
the last column gives what other runs, if there are any, say under the setting named: a reason that was tried, not
guessed. Published gradient norms are of a mean over N rows; ours, per sample, are divided by the N named. Most records
are thinned: where something is first seen after epochs that are not on record, the middle of the epochs at which it may
have begun is taken.
"""
DECIMALS = 4
COLUMNS = ("quantity", "published", "measured", "n", "inside", "other settings")


def render_page(records: Sequence[Record], derived: Sequence[Record] = ()) -> str:
    """The page as Markdown."""
    shelf = Shelf(records)
    rows = _compare_all(shelf)
    parts = [HEAD.format(command=COMMAND), f"{_count_line(rows, shelf)}\n"]
    for part, entries in groupby(PUBLISHED, key=lambda published: published.part):
        lines = [_row(published, rows[published.id], shelf) for published in entries]
        left_out = f"\nNot compared: {NOT_COMPARED[part]}.\n" if part in NOT_COMPARED else ""
        parts.append(f"## {part}\nSaid in: {WHERE[part]}.\n\n{_table(COLUMNS, lines)}{left_out}")
    artefacts = [f"- **{title}.** {text}" for title, text in list_artefacts(shelf, derived).items()]
    parts.append("## Readings that are artefacts\n" + "\n".join(artefacts) + "\n")
    claims = [(c.text, c.answer, c.numbers) for c in list_claims(shelf)]
    parts.append(f"## What must hold\n{_table(('claim', 'holds', 'measured'), claims)}")
    parts.append(_provenance(shelf, derived))
    return "\n".join(parts)


def count_line(records: Sequence[Record]) -> str:
    """How many published numbers are inside."""
    shelf = Shelf(records)
    return _count_line(_compare_all(shelf), shelf)


def _compare_all(shelf: Shelf) -> dict[str, Comparison]:
    return {published.id: compare(published, published.reading(shelf)) for published in PUBLISHED}


def _count_line(rows: dict[str, Comparison], shelf: Shelf) -> str:
    outside = [published for published in PUBLISHED if rows[published.id].inside is False]
    unexplained = sum(not any(found.inside for _, found in _tried(published, shelf)) for published in outside)
    answers = [row.inside for row in rows.values()]
    far = answers.count(True) - sum(row.settled for row in rows.values())
    single = sum(row.inside is None and row.n > 0 for row in rows.values())
    return (
        f"Of {len(rows)} published numbers {answers.count(True)} are inside ({far} of them accuracies that are not "
        f"within 1.5 pp) and {len(outside)} are not, {unexplained} of these under no setting that was tried; "
        f"{answers.count(None) - single} have no run on record, {single} have a single seed and no interval."
    )


def _row(published: Published, found: Comparison, shelf: Shelf) -> tuple[str, ...]:
    # of a number that is inside, settings without a run are not worth a word
    others = "" if found.settled else _others(published, shelf, tried_only=not found.n or bool(found.inside))
    measured = _measured(published, found), str(found.n), _inside(published, found)
    return published.quantity, _said(published), *measured, others


def _said(published: Published) -> str:
    if published.kind == "claim":
        return published.said[0]
    said = [f"−{text[1:]}" if text.startswith("-") else text for text in published.said]
    text = (", " if published.kind == "seeds" else "–").join(said)
    text += f" ± {published.sd}" if published.sd else ""
    known = published.n is not None or published.kind == "seeds"
    return f"{text} (n = {published.seeds})" if known else text


def _number(published: Published, value: float) -> str:
    """Sizes with two digits, shares and cosines with four decimals, other numbers with one more than published."""
    if published.scale == "log10":
        return size(value)
    decimals = max(len(text.partition(".")[2]) for text in published.said)
    return number(value, f".{DECIMALS if decimals > 1 else decimals + 1}f")


def _measured(published: Published, found: Comparison) -> str:
    lacking = f" ({found.values.words()})" if found.values.lacking else ""
    if not found.n:
        return f"not on record{lacking}"
    if published.kind == "claim":
        return f"holds for {sum(found.values.numbers):.0f} of {count(found.n, 'seed')}{lacking}"
    if found.mean is None:
        return f"0 in some seeds{lacking}"
    text = _number(published, found.mean)
    if found.half is not None and published.scale == "log10":
        ends = (found.mean * 10.0**sign for sign in (-found.half, found.half))
        text += f" [{', '.join(size(end) for end in ends)}]"
    elif found.half is not None:
        text += f" ± {_number(published, found.half)}"
    return text + lacking


def _inside(published: Published, found: Comparison) -> str:
    if found.inside is None:
        answer = DASH if not found.n else "one seed, no interval"
    else:
        answer = "yes" if found.inside else "**no**"
    if found.low is not None and found.high is not None:
        answer += f" [{_number(published, found.low)}, {_number(published, found.high)}]"
    if found.close is not None:
        answer += f"; {'within' if found.close else 'not within'} 1.5 pp"
    return answer


def _others(published: Published, shelf: Shelf, *, tried_only: bool) -> str:
    """The same number under every other setting; those without a run are named unless `tried_only`."""
    said = []
    for alternative, found in _tried(published, shelf):
        if found.n or found.values.lacking:
            answer = {True: "inside", False: "not inside", None: "no interval"}[found.inside]
            near = {True: ", within 1.5 pp", False: ", not within 1.5 pp", None: ""}[found.close]
            said.append(f"{alternative.label}: {_measured(published, found)}, n = {found.n}, {answer}{near}")
        elif not tried_only:
            said.append(f"{alternative.label}: not run")
    return "<br>".join(said) or ("" if tried_only else "no other setting was tried")


def _tried(published: Published, shelf: Shelf) -> list[tuple[Alternative, Comparison]]:
    return [(other, compare(published, other.reading(shelf))) for other in published.alternatives]


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
