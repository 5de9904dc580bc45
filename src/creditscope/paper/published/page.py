"""The page: what each setting gives jointly, every published number under all, artefacts, and what must hold."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.paper.published.compare import Comparison, NumberUnderAll, Tallies, compare, compare_settings, tally
from creditscope.paper.published.findings import list_artefacts, list_claims, say_published, size
from creditscope.paper.published.numbers import DATA, OURS, PUBLISHED, SETTINGS, Published
from creditscope.paper.published.readings import RunFinder, Values, shared
from creditscope.paper.studies import find_wanted
from creditscope.paper.studies.rescaling import measure_rescaled, rescaling
from creditscope.record import Record
from creditscope.record.store import write_atomically
from creditscope.text import DASH, count, number

COMMAND = "creditscope reproduction --records results/paper --out docs/reproduction.md"
HEAD = f"""# Reproduction of published numbers

Made from records by `{COMMAND}`.
Nothing on this page is typed in by hand but the published numbers, which are only ever compared with.
"""
METHOD = Path(__file__).with_name("method.md").read_text(encoding="utf-8")
COLUMNS = ("quantity", "published", "n", *(s.title for s in SETTINGS), "ours, all seeds", "other conditions")
DECIMALS = 4
FACTS = {"device": "device", "torch": "torch", "NumPy": "numpy", "Python": "python", "creditscope": "creditscope"}
"""Of a run's provenance, by what they are called on the page."""


def write_reproduction(records: Sequence[Record], path: str | Path, *, root: str | Path) -> list[str]:
    """Write the page to `path`, and say what it leads with; rescaled nets are looked for in the records' `root`."""
    try:
        wanted = find_wanted(rescaling("paper"), records)
        derived = measure_rescaled(wanted, Path(root), measure=False, problems=[])
    except CreditscopeError:
        derived = []
    page, lead = render_page(records, derived)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), page)
    return lead


def render_page(records: Sequence[Record], derived: Sequence[Record] = ()) -> tuple[str, list[str]]:
    """The page as Markdown, and what it leads with, in lines."""
    finder, where = RunFinder(records), {part["title"]: part["said_in"] for part in DATA["parts"]}
    numbers = [compare_settings(published, finder) for published in PUBLISHED]
    tallies = tally(numbers)
    parts = [HEAD, _lead(tallies), METHOD]
    for part, found in groupby(numbers, key=lambda one: one.published.part):
        together, apart = [], {}
        for one in found:
            (apart.setdefault(one.published.apart, []) if one.published.apart else together).append(one)
        text = f"## {part}\nSaid in: {where[part]}.\n\n{_numbers(together, finder)}"
        for why, others in apart.items():
            text += f"\nNot like for like, and not counted ({why}):\n\n{_numbers(others, finder)}"
        parts.append(text)
    parts.append("## Not compared\n" + "".join(f"- {what}\n" for what in DATA["not_compared"]))
    artefacts = [f"- **{title}.** {text}" for title, text in list_artefacts(finder, derived).items()]
    parts.append("## Readings that are artefacts\n" + "\n".join(artefacts) + "\n")
    claims = [(c.text, c.answer, c.numbers) for c in list_claims(finder)]
    parts.append(f"## What must hold\n{_table(('claim', 'holds', 'measured'), claims)}")
    parts.append(_provenance(finder, derived))
    return "\n".join(parts), tallies.lines()


def _lead(found: Tallies) -> str:
    first, *_, last = found.lines()
    tallies = {one.setting.name: one for one in found.by_setting}
    lines = []
    for setting in SETTINGS:
        one = tallies.get(setting.name)
        counts = (f"{one.joint}", f"{one.inside} of {one.answered}", f"{one.far}") if one else ("not run", DASH, DASH)
        lines.append((f"**{setting.title}**" if one in found.best else setting.title, setting.words, *counts))
    columns = (f"inside, of {found.shared} that all have", "inside, of those it has", "of them far off")
    text = f"{first} Inside are, at equal n:\n\n{_table(('setting', 'is', *columns), lines)}\n"
    text += "Far off: accuracies that are inside a wide interval, and more than 1.5 pp away. "
    named = "; ".join(f"{p.quantity} ({say_published(p)})" for p in found.nowhere)
    return f"{text}{last}{f' Inside under none: {named}.' if named else ''}\n"


def _numbers(numbers: Sequence[NumberUnderAll], finder: RunFinder) -> str:
    lines = []
    for one in numbers:
        published, n = one.published, max(found.n for found in one.under.values())
        first, *others = (_say_under(published, one.under[s.name]) for s in SETTINGS)
        cells = first, *(others if published.depends else ["the same"] * len(others))
        both = say_ours(one, finder), say_others(one, finder)
        lines.append((published.quantity, say_published(published), str(n), *cells, *both))
    return _table(COLUMNS, lines)


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |\n" for line in lines)


def _say_under(published: Published, found: Comparison) -> str:
    """Mean and interval, and whether the published number is inside."""
    return f"{_measured(published, found)}; {_inside(published, found)}" if found.values.seeds else DASH


def say_ours(one: NumberUnderAll, finder: RunFinder) -> str:
    """Ours on all its seeds, where these are more than those compared."""
    found = compare(one.published, one.published.reading(finder))
    if found.values == one.under[OURS].values:
        return ""
    return f"{_measured(one.published, found)}, n = {found.n}; {_inside(one.published, found)}"


def say_others(one: NumberUnderAll, finder: RunFinder) -> str:
    """Where ours is not inside: the same number under other conditions, those that were run, on the same seeds.

    Where another has an answer on fewer of them, ours on these follows.
    """
    others = one.published.alternatives if one.under[OURS].inside is not True else ()
    said = [(label, _beside(one, reading(finder))) for label, reading in others]
    return "<br>".join(f"{label}: {text}" for label, text in said if text)


def _beside(one: NumberUnderAll, values: Values) -> str:
    ours, published = one.under[OURS].values, one.published
    seeds = shared((ours.answered, values.answered))
    found = compare(published, values.on(seeds, one.run))
    if not found.values.seeds:
        return ""
    fewer = seeds < ours.answered and found.values.answered
    again = f"; ours on these {_answer(published, compare(published, ours.on(seeds)))}" if fewer else ""
    return _answer(published, found) + again


def _answer(published: Published, found: Comparison) -> str:
    answer = {True: "inside", False: "not inside", None: "no interval"}[found.inside]
    return f"{_measured(published, found)}, n = {found.n}, {answer}{_away(found)}"


def _number(published: Published, value: float) -> str:
    """Sizes with two digits, shares and cosines with four decimals, other numbers with one more than published."""
    if published.scale == "log10":
        return size(value)
    decimals = max(len(text.partition(".")[2]) for text in published.said)
    return number(value, f".{DECIMALS if decimals > 1 else decimals + 1}f")


def _measured(published: Published, found: Comparison) -> str:
    lacking = f" ({found.values.words()})" if found.values.lacking else ""
    if not found.n:
        return f"no value{lacking}"
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
        return "one seed, no interval" if found.n else DASH
    answer = "yes" if found.inside else "**no**"
    if found.low is not None and found.high is not None:
        answer += f" [{_number(published, found.low)}, {_number(published, found.high)}]"
    return answer + _away(found)


def _away(found: Comparison) -> str:
    return ", more than 1.5 pp away" if found.far else ""


def _provenance(finder: RunFinder, derived: Sequence[Record]) -> str:
    read = list(finder.read.values())
    text = f"## Where it comes from\n{count(len(finder.records), 'run')} on record, {len(read):,} of them read here"
    text += f", on {count(len({r.spec.seed for r in read if r.spec}), 'seed')}" if read else ""
    text += f"; {len(derived)} measurements of rescaled nets" if derived else ""
    said = {label: {str(getattr(r.provenance, name))[:40] for r in read} for label, name in FACTS.items()}
    said["commit"] = {r.provenance.commit[:9] for r in read}
    listed = [f"{label} {', '.join(sorted(own - {''}))}" for label, own in said.items() if own - {""}]
    return f"{text}. {'; '.join(listed)}.\n" if listed else f"{text}.\n"
