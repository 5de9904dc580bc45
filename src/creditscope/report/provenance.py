"""Fifth section: what was asked of the runs, on what they were made, and the cards to copy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

from creditscope.auditing.audit import Audit
from creditscope.auditing.card import make_card
from creditscope.auditing.methods import Method
from creditscope.record import Record, RunSpec
from creditscope.record.spec import FREE_FIELDS, RULE_FIELDS
from creditscope.text import DASH, first_few, name_options, option_text, span

CARD_BYTES = 50_000
"""Cards beyond so many bytes are left to `creditscope audit --card`, so that the page stays one that can be mailed."""
ORIGIN = ("creditscope", "commit", "torch", "numpy", "python", "device", "engine", "platform")


def list_origins(records: Sequence[Record]) -> tuple[tuple[str, ...], ...]:
    """Distinct versions, commits and devices, each with its number of runs."""
    found = Counter(_origin(r) for r in records).most_common()
    return tuple((_letter(i), *origin, f"{count:,}") for i, (origin, count) in enumerate(found))


def _origin(record: Record) -> tuple[str, ...]:
    return tuple(_short(name, getattr(record.provenance, name)) for name in ORIGIN)


def _letter(place: int) -> str:
    """A, B, … Z, A1, B1, …

    >>> _letter(0), _letter(27)
    ('A', 'B1')
    """
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place % 26] + (str(place // 26) if place >= 26 else "")


def _short(name: str, value: str) -> str:
    return (value[:10] if name == "commit" else value) or DASH


def spec_facts(method: Method) -> tuple[tuple[str, str], ...]:
    """What all methods of a setting were asked: task, net and recipe."""
    spec = method.spec
    if spec is None:
        return (("net", "watched model"),)
    names = [f.name for f in fields(RunSpec) if f.name not in (*FREE_FIELDS, *RULE_FIELDS)]
    found = [(name, getattr(spec, name)) for name in sorted(names, key=_importance)]
    worded = [(name, name_options(v) if isinstance(v, dict) else option_text(v)) for name, v in found]
    return tuple((name.replace("_", " "), value) for name, value in worded if value)


def _importance(name: str) -> int:
    first = ("task", "task_options", "data_version", "net", "net_options", "epochs", "optimiser", "lr", "schedule")
    return first.index(name) if name in first else len(first)


MOST_SEEDS = 20
"""That a method's row names; the others are counted."""
METHOD_HEAD = ("method", "rule", "options", "seeds", "made with", "measured", "minutes")


def provenance_row(method: Method, origins_known: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """One method and its runs; what they were made with is a line of the table of origins."""
    origins = [record.provenance for record in method.runs.values()]
    spec = method.spec
    days = sorted(p.finished[:10] for p in origins if p.finished)
    options = dict(spec.rule_options) if spec else {}
    if spec:
        options |= {"credit norm": spec.credit_norm} if spec.credit_norm != "none" else {}
        options |= {"λ": spec.penalty} if spec.penalty else {}
    return (
        method.label,
        method.facts.rule.name,
        name_options(options) or DASH,
        first_few([str(seed) for seed in method.runs], MOST_SEEDS) if spec else "not known",
        ", ".join(sorted({_letter(origins_known.index(_origin(r))) for r in method.runs.values()})),
        span(days[0], days[-1], " to ") if days else DASH,
        f"{sum(p.seconds for p in origins) / 60:.1f}",
    )


def write_cards(audit: Audit) -> dict[int, str]:
    """Cards as Markdown by the place of their method, as many as the page has room for."""
    cards, left = {}, CARD_BYTES
    for key in range(len(audit.methods)):
        text = make_card(audit, key).to_markdown()
        if (left := left - len(text.encode())) < 0:
            break
        cards[key] = text
    return cards
