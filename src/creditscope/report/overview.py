"""First section: the verdict of every method, and the one reason behind it."""

from collections import Counter
from collections.abc import Sequence

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.columns import METHODS, OF_WORD
from creditscope.record import Record
from creditscope.report.model import Row
from creditscope.text import count, first_few, span

MOST_SEEDS = 12
"""That the top of the page names; the others are counted."""


COLUMNS = tuple(METHODS[name] for name in ("because", "accuracy", "frozen_own", "frozen_bp", "trained_depth", "seeds"))
"""Beside method and verdict."""


def verdict_row(key: int, found: MethodAudit) -> Row:
    """One method."""
    verdict = found.verdict
    beside = [verdict.not_judged, f"diverged: {verdict.diverged}" if verdict.diverged else ""]
    beside += [f"muted: {', '.join(verdict.muted)}" if verdict.muted else ""]
    return Row(
        key=key,
        method=found.method,
        word=verdict.word,
        symbol=OF_WORD[verdict.word],
        codes=verdict.codes,
        beside="; ".join(text for text in beside if text),
        cells=tuple(column.cell(found) for column in COLUMNS),
    )


def count_words(methods: Sequence[MethodAudit]) -> tuple[tuple[str, str, int], ...]:
    """Symbol, word and number of methods, in the order of the words."""
    found = Counter(m.verdict.word for m in methods)
    return tuple((symbol, word, found[word]) for word, symbol in OF_WORD.items() if found[word])


def answer(audit: Audit | None) -> str:
    """Can these results be trusted, in a sentence."""
    if audit is None:
        return "Nothing could be judged. What is missing is listed below."
    total = len(audit.methods)
    numbers = {word: many for _, word, many in count_words(audit.methods)}
    parts = [
        f"{numbers[word]:,} {said}"
        for word, said in (
            ("trustworthy", "trustworthy"),
            ("walk back", "to be walked back"),
            ("undecided", "undecided"),
            ("not measured", "not measured"),
            ("not judged", "not judged"),
        )
        if word in numbers
    ]
    if len(numbers) == 1 and total > 1:
        return f"All {count(total, 'method')}: {parts[0].split(' ', 1)[1]}."
    return f"Of {count(total, 'method')}: {', '.join(parts)}."


def describe(records: Sequence[Record], audit: Audit | None) -> tuple[tuple[str, str], ...]:
    """The facts at the top."""
    if not records:
        return (("Runs", "none"),)
    seeds = sorted({r.spec.seed for r in records if r.spec})
    devices = Counter(r.provenance.device or "not stated" for r in records)
    facts = [("Runs", f"{len(records):,}")]
    if audit:
        settings = len({m.setting for m in audit.methods})
        facts.append(("Methods", f"{len(audit.methods):,} in {count(settings, 'setting')}"))
    facts.append(("Seeds", first_few([str(s) for s in seeds], MOST_SEEDS) or "not known"))
    facts.append(("Devices", ", ".join(f"{name} ({runs:,})" for name, runs in devices.most_common())))
    finished = sorted(r.provenance.finished for r in records if r.provenance.finished)
    if finished:
        facts.append(("Measured", span(finished[0][:10], finished[-1][:10], " to ")))
    return tuple(facts)
