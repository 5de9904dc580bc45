"""Sixth section: what changed against another folder, verdict by verdict."""

from collections.abc import Sequence

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.columns import OF_WORD
from creditscope.auditing.depth import paired_interval
from creditscope.auditing.methods import Method, accuracies
from creditscope.auditing.stats import known_mean
from creditscope.report.gather import Material
from creditscope.report.model import Change, Comparison
from creditscope.report.names import differences, identity, name_apart
from creditscope.text import DASH, number

Place = tuple[MethodAudit, Method]
"""A method by the name that tells it from the others of its folder, and its records."""


def compare(now: Material, then: Material) -> Comparison:
    """Methods are matched by setting and rule, then by names that only one has; accuracies are paired by seed."""
    here, there = _places(now.audit), _places(then.audit)
    pairs = _match(here, there)
    return Comparison(
        folder=then.folder,
        changes=tuple(_change(*there[pairs[i]], *here[i]) for i in sorted(pairs)),
        only_here=tuple((m.setting, m.method) for i, (m, _) in enumerate(here) if i not in pairs),
        only_there=tuple((m.setting, m.method) for i, (m, _) in enumerate(there) if i not in pairs.values()),
        problems=then.problems,
    )


def _places(audit: Audit | None) -> list[Place]:
    return list(zip(name_apart(audit).methods, audit.groups, strict=True)) if audit else []


def _match(here: Sequence[Place], there: Sequence[Place]) -> dict[int, int]:
    """Places of the second list by those of the first."""
    pairs: dict[int, int] = {}
    for name in (identity, lambda group: (group.setting, group.label)):
        left = [name(group) if i not in pairs else None for i, (_, group) in enumerate(here)]
        right = [name(group) if i not in pairs.values() else None for i, (_, group) in enumerate(there)]
        pairs |= {i: right.index(n) for i, n in enumerate(left) if n and left.count(n) == right.count(n) == 1}
    return pairs


def _change(before: MethodAudit, runs_before: Method, after: MethodAudit, runs_after: Method) -> Change:
    old, new = before.verdict, after.verdict
    return Change(
        setting=after.setting,
        method=after.method,
        before=old.word,
        before_symbol=OF_WORD[old.word],
        after=new.word,
        after_symbol=OF_WORD[new.word],
        came=tuple(code for code in new.codes if code not in old.codes),
        went=tuple(code for code in old.codes if code not in new.codes),
        difference=_difference(runs_before, runs_after),
        differs=differences(runs_before, runs_after),
    )


def _difference(before: Method, after: Method) -> str:
    """After minus before, over the seeds that both have."""
    old, new = accuracies(before.runs), accuracies(after.runs)
    paired = paired_interval(new, old)
    if paired is not None:
        return paired.text("+.3f") if paired.n < 2 else f"{paired.text('+.3f')} (n = {paired.n})"
    before_mean, after_mean = known_mean(old.values()), known_mean(new.values())
    if before_mean is None or after_mean is None:
        return DASH
    return f"{number(after_mean - before_mean, '+.3f')} (no common seed)"
