"""An audit for people: verdicts with their reasons, the three questions, the numbers behind them, and what to do.

Tables never cut a number: they come in as many parts as the width of the terminal asks for.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.checks import Outcome, what_to_do
from creditscope.auditing.columns import BRIEF_TAPS, FINDINGS, METHODS, OF_OUTCOME, Column
from creditscope.auditing.per_tap import TapAudit
from creditscope.auditing.stats import DRAWS, write_points
from creditscope.auditing.tap_credit import POWER, seen_above
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.verdict import explain, rests_on_checks
from creditscope.text import DASH, count, number, span, visible

PLAIN_WIDTH = 150
WIDE = 120
"""Columns that the full tables need."""
LONGEST = 40
"""A text longer than this may be broken over lines."""
STYLES = {
    "trustworthy": "bold green",
    "walk back": "bold red",
    "undecided": "bold yellow",
    "not measured": "bold cyan",
    "not judged": "dim",
    "healthy": "bold green",
    "ill": "bold red",
    "not trained yet": "dim",
}
OUTCOME_STYLES = {Outcome.ISSUE: "red", Outcome.PASSED: "green"}
MOST_DETAILED = 3
"""Settings whose tables are printed; of more there is a line per method."""
MOST_BESIDE = 3
"""Methods that leave room for the limits beside the outcomes."""
NARROWER = (
    f"The three questions, numbers and checks are printed for at most {MOST_DETAILED} settings. Name words of a "
    'setting, a method or a verdict: creditscope audit … --only "cifar10, 30 epochs", or audit.only(…) in Python; '
    "--json and --card DIR hold everything."
)
NUMBERS = ("accuracy", "frozen_own", "frozen_bp", "gamma", "gamma_inexact", "growth", "g_top")
ABOUT_NUMBERS = (
    "± 95 % t interval over seeds, test set fixed · Γ mean cosine over the block taps · growth: largest RMS ratio over "
    "one block · ‖g_L‖ median per sample"
)
ABOUT_LADDER = (
    "accuracy by trained blocks, with (full run − this one) in pp, ± 95 % t interval of the difference paired by "
    "seed · Δ over the better frozen baseline, own or BP's · − BP: accuracy minus BP's"
)
ABOUT_SIZES = (
    "median per sample of the state and of the exact gradient, geometric mean over seeds; – is 0 or not measured · "
    "growth: RMS ratio over a residual block"
)
ABOUT_CHECKS = (
    f"{' · '.join(f'{sign} {outcome}' for outcome, sign in OF_OUTCOME.items())} · † the published threshold, where "
    "there is one, fires · over seeds, bounds decide · thresholds: creditscope list thresholds"
)
Cell = str | Text
Methods = Sequence[MethodAudit]
"""Mostly those of one setting."""


def make_console() -> Console:
    """A console that is wide enough for the tables when it is not a terminal."""
    make = partial(Console, highlight=False, markup=False, emoji=False)
    console = make()
    return console if console.is_terminal else make(width=PLAIN_WIDTH)


def render_plain(draw: Callable[[int], RenderableType]) -> str:
    """What `draw` makes of a width, as plain text."""
    text = io.StringIO()
    make = partial(Console, highlight=False, no_color=True, force_terminal=False, force_jupyter=False)
    make(width=PLAIN_WIDTH, file=text).print(draw(PLAIN_WIDTH))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")


def printed(said: str, style: str = "") -> Text:
    """A line for the terminal: everything that is printed passes here, so that nothing in it is markup or is obeyed."""
    return Text(visible(said), style=style)


def _cell(said: Cell) -> Text:
    return said if isinstance(said, Text) else printed(said)


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")


def flowing_table(columns: Sequence[Column], rows: Iterable[Any]) -> Table:
    """A table in one part, whose words are broken over lines."""
    table = _table()
    for i, column in enumerate(columns):
        right = i > 0 and not column.words
        table.add_column(printed(column.heading), justify="right" if right else "left", no_wrap=not column.words)
    for row in rows:
        cells = (_verdict(row) if column is METHODS["verdict"] else column.cell(row) for column in columns)
        table.add_row(*map(_cell, cells))
    return table


def fit_tables(first: str, labels: Sequence[str], columns: Mapping[str, Sequence[Cell]], width: int) -> list[Table]:
    """A table of labelled rows, in as many parts as the width asks for; the first column is repeated."""
    own = max(map(len, map(_cell, (first, *labels)))) + 3  # labels are never broken
    parts, taken = [{}], own
    for name, cells in columns.items():
        needed = _width(name, cells)
        if parts[-1] and taken + needed > width:
            parts.append({})
            taken = own
        parts[-1][name] = cells
        taken += needed
    return [_part(first, labels, part) for part in parts]


def _part(first: str, labels: Sequence[str], columns: Mapping[str, Sequence[Cell]]) -> Table:
    table = _table()
    table.add_column(printed(first), no_wrap=True)
    for name, cells in columns.items():
        worded = name == "verdict" or _width(name, cells) > LONGEST
        table.add_column(printed(name), justify="left" if worded else "right", no_wrap=not worded)
    for row in zip(labels, *columns.values(), strict=True):
        table.add_row(*map(_cell, row))
    return table


def _width(name: str, cells: Sequence[Cell]) -> int:
    return min(max(map(len, map(_cell, (name, *cells)))), LONGEST) + 3


def note(text: str) -> Text:
    """A line under a table."""
    return printed(text, style="dim italic")


def warn(texts: Iterable[str]) -> list[Text]:
    """Lines about what a reader should know besides."""
    return [printed(f"note: {text}", style="yellow") for text in texts]


def draw_audit(audit: Audit, width: int) -> Group:
    """The whole audit."""
    by_setting: dict[str, list[MethodAudit]] = {}
    for m in audit.methods:
        by_setting.setdefault(m.setting, []).append(m)
    networks = [m for m in audit.methods if m.network]
    settings = [methods for methods in by_setting.values() if not methods[0].network]
    many, parts = len(settings) > MOST_DETAILED, _networks(networks, width)
    if not settings:
        return Group(*parts, *warn((*audit.notes, *audit.problems)))
    judged = [m for m in audit.methods if not m.network]
    if many:
        words = Counter(m.verdict.word for m in judged)
        said = ", ".join(f"{words[word]} {word}" for word in STYLES if words[word])
        parts.append(printed(f"{count(len(judged), 'method')} in {count(len(settings), 'setting')}: {said}"))
        parts += [*_brief_tables(settings, width), _meanings(judged), Text()]
    else:
        for methods in settings:
            several = len({len(m.seeds) for m in methods}) > 1
            names = ("method", *["seeds"] * several, "accuracy", "verdict", "because")
            parts += [_title(methods), flowing_table([METHODS[name] for name in names], methods)]
        parts.append(_meanings(judged))
        for methods in settings:
            parts += [Text(), _title(methods)] * (len(settings) > 1) + _details(methods, audit.limits, width)
    parts += [*_remedies(judged), *warn((*audit.notes, *audit.problems)), *[printed(NARROWER)] * many]
    return Group(*parts)


def _networks(networks: Methods, width: int) -> list[RenderableType]:
    """Watched networks, one after the other."""
    from creditscope.auditing.show_network import draw_network

    return [part for m in networks for part in (*draw_network(m, width), Text())][:-1]


def _title(methods: Methods) -> Text:
    """The setting and how many seeds its methods have."""
    *fewer, most = sorted({len(m.seeds) for m in methods})
    said = f"{fewer[0]} to {most} seeds" if fewer else count(most, "seed")
    return printed(f"{methods[0].setting} · {said}", style="bold")


def _verdict(m: MethodAudit) -> Text:
    return printed(str(m.verdict), style=STYLES[m.verdict.word])


def _brief_tables(settings: Sequence[Methods], width: int) -> list[RenderableType]:
    """A line per method under the title of its setting, for many settings."""
    columns = [METHODS[name] for name in ("method", "accuracy", "verdict")]
    every = [m for methods in settings for m in methods]
    longest = [min(max(len(_cell(c.cell(m))) for m in every), LONGEST) if width >= WIDE else None for c in columns]
    parts: list[RenderableType] = []
    for methods in settings:
        table = Table(box=None, show_header=False, pad_edge=False)
        for least in (*longest, None):
            table.add_column(min_width=least)
        for m in methods:
            cells = (m.method, METHODS["accuracy"].cell(m), _verdict(m), explain(m, brief=True))
            table.add_row(*map(_cell, cells))
        parts += [_title(methods), Padding(table, (0, 0, 0, 2))]
    return parts


def _meanings(methods: Methods) -> Text:
    """What a reader may do with the words that occur, each once."""
    found = dict.fromkeys((m.verdict.word, m.verdict.meaning) for m in methods)
    return note(" · ".join(f"{word}: {meaning}" for word, meaning in found))


def _details(methods: Methods, limits: Thresholds, width: int) -> list[RenderableType]:
    """The questions of each method of a setting, then the numbers behind the answers."""
    parts = [part for m in methods for part in (Text(), *_answers(m))]
    if not any(m.accuracy or m.per_tap[0].h_norm for m in methods):
        return parts
    columns = {METHODS[name].heading: [METHODS[name].cell(m) for m in methods] for name in NUMBERS}
    parts += [*_by_method("method", methods, columns, width), note(ABOUT_NUMBERS)]
    parts += [*_ladder(methods, width), *_blocks(methods, width)]
    exact = all(tap.exact for m in methods for tap in m.per_tap)
    parts += _sizes(methods, width) if exact else _taps(methods, limits, width)
    return [*parts, *_checks(methods, width)]


def _indent(lines: Iterable[str]) -> list[RenderableType]:
    return [Padding(printed(line), (0, 0, 0, 2)) for line in lines]


def _answers(m: MethodAudit) -> list[RenderableType]:
    """The three questions with their answers, and what goes with them."""
    lines = [f"Diverged: {m.verdict.diverged}"] * bool(m.verdict.diverged)
    if rests_on_checks(m) or not m.verdict.diverged:
        lines += _about_checks(m)
    if len(m.seed_verdicts) > 1 and any(not verdict.diverged for verdict in m.seed_verdicts.values()):
        lines.append(f"Each seed alone (without CS004 and CS011): {_seeds_alone(m)}")
    return [Text.assemble(printed(f"{m.method}: "), _verdict(m)), *_indent(lines)]


def _about_checks(m: MethodAudit) -> list[str]:
    lines = [f"{line.question} {line.answer}. {line.reason}" for line in m.verdict.lines]
    if m.rows_interact:
        lines.append(
            "Rows interact (message passing, or BatchNorm in train mode): a row's gradient is not its own alone"
        )
    told = {code for line in m.verdict.lines for code in line.codes}
    lines += [f"Tip {f.code}: {f.message}" for f in m.findings if f.outcome == Outcome.TIP and f.code not in told]
    ends = {Outcome.ISSUE: "", Outcome.UNDECIDED: ", undecided at the end"}
    fired = [f"{f.code} at {f.fired}{ends.get(f.outcome, ', not at the end')}" for f in m.findings if f.fired]
    return [*lines, f"First an issue in training: {'; '.join(fired)}"] if fired else lines


def _seeds_alone(m: MethodAudit) -> str:
    """Verdicts of single seeds, each verdict once."""
    seeds: dict[str, list[str]] = {}
    for seed, verdict in m.seed_verdicts.items():
        seeds.setdefault(str(verdict), []).append(str(seed))
    if len(seeds) == 1:
        return f"all {next(iter(seeds))}"
    return "; ".join(f"{verdict}: {', '.join(those)}" for verdict, those in seeds.items())


def _remedies(methods: Methods) -> list[RenderableType]:
    """What to do about each check that fired, once a code."""
    judged = [m for m in methods if rests_on_checks(m) or not m.verdict.diverged]
    lines = what_to_do(f for m in judged for f in m.findings)
    why = note("why a check matters and how it decides: creditscope audit --explain CODE")
    return [printed("What to do", style="bold"), *_indent(lines), why] if lines else []


def _by_method(first: str, methods: Methods, columns: dict[str, list[str]], width: int) -> list[Table]:
    return fit_tables(first, [m.method for m in methods], columns, width)


def _ladder(methods: Methods, width: int) -> list[RenderableType]:
    """Gains over the baselines, with the rungs of the depth ladder."""
    rungs = sorted({rung.trained for m in methods for rung in m.ladder})
    if not rungs:
        return []
    columns = {f"last {k} trained" if k else "none trained": [_rung(m, k) for m in methods] for k in rungs}
    columns["all trained"] = [number(m.accuracy.mean if m.accuracy else None, ".3f") for m in methods]
    for column in map(METHODS.__getitem__, ("versus_bp", "gain", "gain_share")):
        columns[column.heading] = [column.cell(m) for m in methods]
    return [*_by_method("use of depth", methods, columns, width), note(ABOUT_LADDER)]


def _rung(m: MethodAudit, trained: int) -> str:
    found = next((rung for rung in m.ladder if rung.trained == trained), None)
    return f"{found.accuracy.mean:.3f} ({write_points(found.below_full)})" if found else DASH


def _tap_names(methods: Methods) -> list[str]:
    most = max((m.taps for m in methods), key=len)
    return [f"tap {i} {name}" for i, name in enumerate(most)]


def _tap_columns(column: Column, methods: Methods) -> dict[str, list[str]]:
    """One quantity of all methods, a column per tap."""
    return {
        name: [column.cell(m.per_tap[i]) if i < len(m.per_tap) else "" for m in methods]
        for i, name in enumerate(_tap_names(methods))
    }


def _blocks(methods: Methods, width: int) -> list[RenderableType]:
    """What each block is worth to the trained net."""
    lost = BRIEF_TAPS["rewind_loss"]
    columns = {n: cells for n, cells in _tap_columns(lost, methods).items() if any(c not in ("", DASH) for c in cells)}
    if not columns:
        return []
    skipped = " (when it is skipped)" if any(tap.skip_loss for m in methods for tap in m.per_tap) else ""
    caption = f"accuracy lost, pp, when this block alone is put back to where it began{skipped}, ± 95 % over seeds"
    if any(m.trained_depth for m in methods):
        depths = [m.trained_depth.beside(m.bp_trained_depth) if m.trained_depth else DASH for m in methods]
        columns["trained depth"] = depths
        caption += " · trained depth: blocks that cost what counts, by their bounds; dependence, not benefit (CS011)"
    return [*_by_method(lost.heading, methods, columns, width), note(caption)]


def _taps(methods: Methods, limits: Thresholds, width: int) -> list[RenderableType]:
    """Cosines; and, where they were measured, alignment acquired and descent: never a mean without its layers."""
    taps, spread = [tap for m in methods for tap in m.per_tap], _spread(methods)
    captions = {
        "cos": _about_cosines([tap for tap in taps if not tap.exact], spread, limits),
        "acquired": f"alignment acquired: cos minus that of fresh feedback, in each seed; {spread}",
        "descent": "best decrease of the loss along −a over that along −g; (null) mean of the same for credit turned "
        f"at random; {spread}",
    }
    parts: list[RenderableType] = []
    for name, caption in captions.items():
        column = BRIEF_TAPS[name]
        if name == "cos" or any(map(column.value, taps)):
            parts += [*_by_method(column.heading, methods, _tap_columns(column, methods), width), note(caption)]
    return parts


def _about_cosines(taps: Sequence[TapAudit], spread: str, limits: Thresholds) -> str:
    """What the marks mean, and once what so many seeds can see."""
    said = [f"mean {spread}", f"✓ carries credit, ✗ below δ = {limits.alignment:g}, ? open (CS005)"]
    if any(tap.beta for tap in taps):
        said.append("β: projection of the mean of the rule's own draws on the gradient, which is judged")
    said += ["(cosine of the stage's weights)", "= exact credit"]
    nulls = [tap.null_sd for tap in taps if tap.answer and tap.null_sd]
    if nulls:
        least, most = (number(seen_above(null, limits), ".3f") for null in (min(nulls), max(nulls)))
        said.append(f"seen above chance with {100 * POWER:.0f} % power: {span(least, most, ' to ')}")
    return " · ".join(said)


def _spread(methods: Methods) -> str:
    """How the spread is made, read off the intervals themselves."""
    found = [tap.cos for m in methods for tap in m.per_tap if tap.cos]
    if not any(interval.low is not None for interval in found):
        return "of one seed"
    if any(interval.kind == "bootstrap" for interval in found):
        return f"[95 % percentile bootstrap over seeds, {DRAWS:,} draws, test set fixed]"
    return "± 95 % t interval over seeds (ddof 1), test set fixed"


def _sizes(methods: Methods, width: int) -> list[RenderableType]:
    """Where all credit is exact a cosine says nothing: sizes of states and gradients instead, a row per tap."""
    labels, columns = _tap_names(methods), {}
    for m in methods:
        for column in map(BRIEF_TAPS.__getitem__, ("h_norm", "growth", "g_norm")):
            if column.name != "growth" or m.growth is not None:
                name = f"{m.method}: {column.heading}" if len(methods) > 1 else column.heading
                columns[name] = [*map(column.cell, m.per_tap), *[""] * (len(labels) - len(m.taps))]
    return [*fit_tables("size", labels, columns, width), note(ABOUT_SIZES)]


def _checks(methods: Methods, width: int) -> list[RenderableType]:
    """What every check finds of every method; with room, what its value is compared with, and the words."""
    columns: dict[str, Sequence[Cell]] = {}
    if width >= WIDE and len(methods) <= MOST_BESIDE:
        limits = zip(*([f.limit for f in m.findings] for m in methods), strict=True)
        columns["limit"] = [next(filter(None, found), "") for found in limits]
    for m in methods:
        signs = [FINDINGS["outcome"].cell(f) if width >= WIDE else OF_OUTCOME[f.outcome] for f in m.findings]
        columns[m.method] = [
            printed(f"{sign}{' †' if f.published else ''}", style=OUTCOME_STYLES.get(f.outcome, "yellow"))
            for sign, f in zip(signs, m.findings, strict=True)
        ]
    labels = [FINDINGS["code"].cell(f) for f in methods[0].findings]
    return [*fit_tables("check", labels, columns, width), note(ABOUT_CHECKS)]
