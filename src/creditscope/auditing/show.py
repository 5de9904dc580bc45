"""An audit for people: a strip a method, a line for each reason, what to do, and the strips again."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from rich.console import Group, RenderableType
from rich.text import Text

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.checks import Outcome, all_checks, what_to_do
from creditscope.auditing.columns import OF_OUTCOME, OF_WORD
from creditscope.auditing.printing import STYLES, WIDE, fit_line, indent, note, printed, warn
from creditscope.auditing.strip import lay_out, make_strip, write_key
from creditscope.auditing.verdict import explain, rests_on_checks
from creditscope.text import cells, count, first_few, pad, visible

SIGN_STYLES = {"✓": "green", "✗": "red", "?": "yellow", "○": "cyan", "–": "dim"}
REASONS = (Outcome.ISSUE, Outcome.SKIPPED, Outcome.UNDECIDED)
"""Outcomes that have a line, in this order."""
MOST_DETAILED = 3
"""Settings whose reasons are printed; of more there are strips."""
NARROWER = (
    f"Reasons are printed for at most {MOST_DETAILED} settings. Name words of a "
    'setting, a method or a verdict: creditscope audit … --only "cifar10, 30 epochs", or audit.only(…) in Python; '
    "--json and --card DIR hold everything."
)
NAMED = 4
"""Methods of which it is said what to run."""
NARROW_NAMES = 8
"""A name that takes more than this part of the width stands above its reasons."""
MORE = "creditscope audit … -v, or show(verbose=True), tells more; --explain CODE why"
Methods = Sequence[MethodAudit]
"""Mostly those of one setting."""


def draw_audit(audit: Audit, width: int, *, verbose: bool = False) -> Group:
    """Strips, reasons, what to do, and the strips again; with what lies behind them if `verbose`."""
    from creditscope.auditing.show_details import draw_details

    networks, judged = ([m for m in audit.methods if m.network == kind] for kind in (True, False))
    settings = list(_by_setting(judged).values())
    many = len(settings) > MOST_DETAILED
    counted = [_count(judged, len(settings))] * many
    drawn = _strips(settings, width, codes=many and width >= WIDE)
    strips = [part for methods, own in zip(settings, drawn, strict=True) for part in (_title(methods), *own)]
    parts = [*_networks(networks, width), *counted, *strips]
    parts += [note(write_key(text.plain for text in strips)), _meanings(judged)] if judged else []
    for methods in [] if many else settings:
        parts += [Text(), *[_title(methods)] * (len(settings) > 1), *_reasons(methods, width)]
        parts += draw_details(methods, audit.limits, width) if verbose else []
    parts += _remedies(judged, width, verbose=verbose)
    parts += [*warn((*audit.notes, *audit.problems)), *[printed(NARROWER)] * many]
    parts += [note(MORE)] if judged and not verbose and not many else []
    return Group(*parts, Text(), *draw_strips(networks, width), *(counted or strips[len(settings) == 1 :]))


def _strips(settings: Sequence[Methods], width: int, *, codes: bool) -> list[list[Text]]:
    """Those of each setting: laid out together, so that one can look down them, if each then has one line."""
    together = draw_strips([m for methods in settings for m in methods], width, codes=codes)
    if any("\n" in text.plain for text in together):
        return [draw_strips(methods, width, codes=codes) for methods in settings]
    drawn = iter(together)
    return [list(islice(drawn, len(methods))) for methods in settings]


def _by_setting(methods: Methods) -> dict[str, list[MethodAudit]]:
    found: dict[str, list[MethodAudit]] = {}
    for m in methods:
        found.setdefault(m.setting, []).append(m)
    return found


def _count(judged: Methods, settings: int) -> Text:
    words = Counter(m.verdict.word for m in judged)
    said = ", ".join(f"{words[word]} {word}" for word in STYLES if words[word])
    return printed(f"{count(len(judged), 'method')} in {count(settings, 'setting')}: {said}", style="bold")


def _networks(networks: Methods, width: int) -> list[RenderableType]:
    """Watched networks, one after the other."""
    from creditscope.auditing.show_network import draw_network

    return [part for m in networks for part in (*draw_network(m, width), Text())][:-1]


def _title(methods: Methods) -> Text:
    """The setting and how many seeds its methods have."""
    *fewer, most = sorted({len(m.seeds) for m in methods})
    said = f"{fewer[0]} to {most} seeds" if fewer else count(most, "seed")
    return printed(f"{methods[0].setting} · {said}", style="bold")


def draw_strips(methods: Methods, width: int, *, codes: bool = False) -> list[Text]:
    """A text a method, coloured by its answers; with the codes behind its verdict, if asked for."""
    behind = [" ".join(m.verdict.codes) if codes else "" for m in methods]
    room = width - max(map(len, behind), default=0) - codes
    drawn = []
    for lines, told in zip(lay_out([make_strip(m) for m in methods], room), behind, strict=True):
        text = Text("\n").join(Text.assemble(*(printed(p.text, _style(p.sign)) for p in line)) for line in lines)
        drawn.append(text.append_text(printed(f" {told}", "dim")) if told else text)
    return drawn


def _style(sign: str) -> str:
    return STYLES.get(sign) or SIGN_STYLES.get(sign, "")


def _reasons(methods: Methods, width: int) -> list[Text]:
    """Method by method, a line for each check that is not at rest; what a line has no room for is said by -v."""
    names = {m.method: visible(m.method) for m in methods}
    wide = {name: cells(name) for name in names.values()}
    beside = max((own for own in wide.values() if own <= width // NARROW_NAMES), default=1) + 1
    lines = []
    for m in methods:
        name, reasons = names[m.method], list_reasons(m)
        if wide[name] >= beside:
            lines.append(Text(name))
            name = ""
        for sign, *said in reasons:
            told = printed(fit_line(width - beside - 2, *said))
            lines.append(Text.assemble(pad(name, beside), (f"{sign} ", _style(sign)), told))
            name = ""
    return lines


def list_reasons(m: MethodAudit) -> Iterator[tuple[str, ...]]:
    """Each with its sign, in more words and in fewer: what diverged, what was muted, what the checks found."""
    if m.verdict.diverged:
        yield "✗", f"diverged: {m.verdict.diverged}"
    if m.verdict.muted:
        yield OF_OUTCOME["muted"], f"muted: {', '.join(m.verdict.muted)}"
    if not m.verdict.codes:
        if not m.verdict.diverged:
            yield OF_WORD[m.verdict.word], explain(m)
        return
    found = sorted((f for f in m.findings if f.outcome in REASONS), key=lambda f: (REASONS.index(f.outcome), f.rank))
    for f in found:
        said = f.message if f.outcome == Outcome.SKIPPED else without_brackets(f.message)
        yield OF_OUTCOME[f.outcome], f"{f.code} {f.title}: {said}", f"{f.code} {said}"


def without_brackets(said: str) -> str:
    """The main clause of what a check found.

    >>> without_brackets("under 0.05 at taps 2 (at most +0.034), 3 (at most +0.030 (of 5)); the stem (tap 0) is told")
    'under 0.05 at taps 2, 3; the stem is told'
    """
    before = ""
    while said != before:
        before, said = said, re.sub(r" ?\([^()]*\)", "", said)
    return said


def list_runs(methods: Methods) -> list[str]:
    """What to run for those that lack a measurement, by the options that they lack."""
    lacking: dict[str, list[str]] = {}
    for m in methods:
        if needs := sorted({need for f in m.findings for need in f.needs}):
            lacking.setdefault(" ".join(needs), []).append(visible(m.method))
    several = len({m.method for m in methods}) > 1
    named = {needs: first_few([*dict.fromkeys(names)], NAMED) for needs, names in lacking.items()}
    return [f"○ run again with {needs}" + f": {names}" * several for needs, names in named.items()]


def _meanings(methods: Methods) -> Text:
    """What a reader may do with the words that occur, each once."""
    found = dict.fromkeys((m.verdict.word, m.verdict.meaning) for m in methods)
    return note(" · ".join(f"{word}: {meaning}" for word, meaning in found))


def _remedies(methods: Methods, width: int, *, verbose: bool) -> list[RenderableType]:
    """What to do about each check that fired, once a code; a line each of those among the reasons, if not `verbose`."""
    judged = [m for m in methods if rests_on_checks(m) or not m.verdict.diverged]
    findings = [f for m in judged for f in m.findings]
    if verbose:
        lines = indent(what_to_do(findings))
    else:
        remedies = {check.code: check.remedy for check in all_checks()}
        fired = sorted((f.rank, f.code) for f in findings if f.outcome in REASONS and f.outcome != Outcome.SKIPPED)
        codes = dict.fromkeys(code for _, code in fired)
        lines = indent(fit_line(width - 2, f"{code} {remedies[code]}") for code in codes)
    lines = [*indent(fit_line(width - 2, said) for said in list_runs(judged)), *lines]
    why = note("why a check matters and how it decides: creditscope audit --explain CODE")
    return [printed("What to do", style="bold"), *lines, *[why] * verbose] if lines else []
