"""Sixth section: what changed against another folder, verdict by verdict."""

from collections import Counter

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.depth import paired_interval
from creditscope.auditing.methods import Method, accuracies
from creditscope.report.gather import Material
from creditscope.report.model import Change, Comparison
from creditscope.report.numbers import interval
from creditscope.report.symbols import OF_WORD

Key = tuple[str, str, int]
"""Setting, method, and which of those with both names alike."""


def compare(now: Material, then: Material) -> Comparison:
    """Methods are matched by setting and method; accuracies are paired by seed."""
    here, there = _by_key(now.audit), _by_key(then.audit)
    return Comparison(
        folder=then.folder,
        changes=tuple(_change(*there[key], *here[key]) for key in here if key in there),
        only_here=tuple(key[:2] for key in here if key not in there),
        only_there=tuple(key[:2] for key in there if key not in here),
        problems=then.problems,
    )


def _by_key(audit: Audit | None) -> dict[Key, tuple[MethodAudit, Method]]:
    found, seen = {}, Counter[tuple[str, str]]()
    for method, group in zip(audit.methods, audit.groups, strict=True) if audit else ():
        names = (method.setting, method.method)
        found[(*names, seen[names])] = method, group
        seen[names] += 1
    return found


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
    )


def _difference(before: Method, after: Method) -> str:
    """After minus before, over the seeds that both have."""
    old, new = accuracies(before.runs), accuracies(after.runs)
    paired = paired_interval(new, old)
    if paired is not None:
        return interval(paired, "+.3f") if paired.n < 2 else f"{interval(paired, '+.3f')} (n = {paired.n})"
    if not old or not new:
        return "–"
    gap = sum(new.values()) / len(new) - sum(old.values()) / len(old)
    return f"{gap:+.3f} (no common seed)".replace("-", "−")
