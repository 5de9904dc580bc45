"""Verdicts for people: a table with the reason of each, the three questions, and what to do."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.manual import what_to_do
from creditscope.auditing.reason import explain, explain_briefly, rests_on_checks
from creditscope.auditing.stats import write_interval
from creditscope.auditing.tables import LONGEST, STYLES, WIDE, note, plain_table
from creditscope.text import count, span

Setting = Sequence[MethodAudit]
"""The methods of one setting."""


def title(methods: Setting) -> Text:
    """The setting and how many seeds its methods have."""
    seeds = [len(m.seeds) for m in methods]
    least, most = min(seeds), max(seeds)
    said = count(most, "seed") if least == most else f"{span(least, most, ' to ')} seeds"
    return Text(f"{methods[0].setting} · {said}", style="bold")


def verdict_table(methods: Setting) -> Table:
    """Each method with its verdict and the reason for it."""
    table = plain_table()
    several = len({len(m.seeds) for m in methods}) > 1
    table.add_column("rule", no_wrap=True)
    for name in (*["seeds"] * several, "accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("verdict", "because"):
        table.add_column(name)
    for m in methods:
        seeds = [str(len(m.seeds))] * several
        table.add_row(m.method, *seeds, write_interval(m.accuracy), _worded(m), explain(m))
    return table


def brief_tables(settings: Sequence[Setting], width: int) -> Group:
    """A line per method under the title of its setting, for many settings."""
    every = [_brief_row(m) for methods in settings for m in methods]
    longest = [min(max(len(row[i]) for row in every), LONGEST) if width >= WIDE else None for i in range(3)]
    parts: list[RenderableType] = []
    for methods in settings:
        table = Table(box=None, show_header=False, pad_edge=False)
        for least in (*longest, None):
            table.add_column(min_width=least)
        for m in methods:
            table.add_row(*_brief_row(m))
        parts += [title(methods), Padding(table, (0, 0, 0, 2))]
    return Group(*parts)


def _brief_row(m: MethodAudit) -> tuple[str, str, Text, str]:
    return m.method, write_interval(m.accuracy), _worded(m), explain_briefly(m)


def count_verdicts(methods: Sequence[MethodAudit], settings: int) -> Text:
    """How many there are of each word."""
    words = Counter(m.verdict.word for m in methods)
    said = ", ".join(f"{words[word]} {word}" for word in STYLES if words[word])
    return Text(f"{count(len(methods), 'method')} in {count(settings, 'setting')}: {said}")


def meanings(methods: Sequence[MethodAudit]) -> Text:
    """What a reader may do with the words that occur, each once."""
    found = dict.fromkeys((m.verdict.word, m.verdict.meaning) for m in methods)
    return note(" · ".join(f"{word}: {meaning}" for word, meaning in found))


def answers(m: MethodAudit) -> Group:
    """The three questions with their answers, and what goes with them."""
    head = Text(f"{m.method}: ")
    head.append(_worded(m))
    lines = [f"Diverged: {m.verdict.diverged}"] * bool(m.verdict.diverged)
    if rests_on_checks(m) or not m.verdict.diverged:
        lines += _about_checks(m)
    if len(m.seed_verdicts) > 1 and any(not verdict.diverged for verdict in m.seed_verdicts.values()):
        lines.append(f"Each seed alone (without CS004 and CS011): {_seeds_alone(m)}")
    return Group(head, *(Padding(Text(line), (0, 0, 0, 2)) for line in lines))


def _about_checks(m: MethodAudit) -> list[str]:
    lines = [f"{line.question} {line.answer}. {line.reason}" for line in m.verdict.lines]
    if m.rows_interact:
        lines.append(
            "Rows interact (message passing, or BatchNorm in train mode): a row's gradient is not its own alone"
        )
    told = {code for line in m.verdict.lines for code in line.codes}
    lines += [f"Tip {f.code}: {f.message}" for f in m.findings if f.outcome == Outcome.TIP and f.code not in told]
    fired = [_first_fired(f) for f in m.findings if f.fired]
    if fired:
        lines.append(f"First an issue in training: {'; '.join(fired)}")
    return lines


def _seeds_alone(m: MethodAudit) -> str:
    """Verdicts of single seeds, each verdict once."""
    seeds: dict[str, list[str]] = {}
    for seed, verdict in m.seed_verdicts.items():
        seeds.setdefault(str(verdict), []).append(str(seed))
    if len(seeds) == 1:
        return f"all {next(iter(seeds))}"
    return "; ".join(f"{verdict}: {', '.join(those)}" for verdict, those in seeds.items())


def remedies(methods: Sequence[MethodAudit]) -> Group:
    """What to do about each check that fired, once a code."""
    judged = [m for m in methods if rests_on_checks(m) or not m.verdict.diverged]
    lines = what_to_do(f for m in judged for f in m.findings)
    if not lines:
        return Group()
    why = note("why a check matters and how it decides: creditscope audit --explain CODE")
    return Group(Text("What to do", style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in lines), why)


def _worded(m: MethodAudit) -> Text:
    return Text(str(m.verdict), style=STYLES[m.verdict.word])


def _first_fired(finding: Finding) -> str:
    over = {Outcome.ISSUE: "", Outcome.UNDECIDED: ", undecided at the end"}.get(finding.outcome, ", not at the end")
    return f"{finding.code} at {finding.fired}{over}"
