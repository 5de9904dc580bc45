"""Which methods are the same, names that tell apart those that are not, and what changed against another folder."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.depth import paired_interval
from creditscope.auditing.methods import Method, accuracies, rule_key, setting_key
from creditscope.auditing.stats import known_mean
from creditscope.record.spec import RULE_FIELDS
from creditscope.text import DASH, number

SHORT = 24
"""Letters of a value that is shown to tell names apart."""
TAP_NAMES = "tap_names"
"""Long, so that they are shown only where nothing else differs."""
Place = tuple[MethodAudit, Method]
"""A method by the name that tells it from the others of its folder, and its records."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A method on both sides of a comparison."""

    before: MethodAudit
    after: MethodAudit
    difference: str
    differs: str
    """Fields in which what was asked differs, where only the names are alike."""

    @property
    def came(self) -> list[str]:
        return [code for code in self.after.verdict.codes if code not in self.before.verdict.codes]

    @property
    def went(self) -> list[str]:
        return [code for code in self.before.verdict.codes if code not in self.after.verdict.codes]

    @property
    def is_change(self) -> bool:
        return self.before.verdict.word != self.after.verdict.word or bool(self.came or self.went)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What changed against another folder."""

    changes: list[Change]
    only_here: list[MethodAudit]
    only_there: list[MethodAudit]


def compare(now: Audit | None, then: Audit | None) -> Comparison:
    """Methods are matched by setting and rule, then by names that only one has; accuracies are paired by seed."""
    here, there = _places(now), _places(then)
    pairs = _match(here, there)
    matched = set(pairs.values())
    return Comparison(
        changes=[_change(there[pairs[i]], here[i]) for i in sorted(pairs)],
        only_here=[m for i, (m, _) in enumerate(here) if i not in pairs],
        only_there=[m for i, (m, _) in enumerate(there) if i not in matched],
    )


def _places(audit: Audit | None) -> list[Place]:
    return list(zip(name_apart(audit).methods, audit.groups, strict=True)) if audit else []


def _match(here: Sequence[Place], there: Sequence[Place]) -> dict[int, int]:
    """Places of the second list by those of the first."""
    pairs: dict[int, int] = {}
    for name in (identity, lambda group: (group.setting, group.label)):
        taken = set(pairs.values())
        left = {i: name(group) for i, (_, group) in enumerate(here) if i not in pairs}
        right = {i: name(group) for i, (_, group) in enumerate(there) if i not in taken}
        places = {n: i for i, n in right.items()}
        times = Counter(left.values()), Counter(right.values())
        pairs |= {i: places[n] for i, n in left.items() if times[0][n] == times[1][n] == 1}
    return pairs


def _change(before: Place, after: Place) -> Change:
    old, new = ({**_setting_fields(group), **_rule_fields(group)} for _, group in (before, after))
    differing = [name for name in new if repr(old.get(name)) != repr(new[name])]
    return Change(
        before=before[0],
        after=after[0],
        difference=_difference(before[1], after[1]),
        differs=", ".join(f"{_words(n)} {_shown(old.get(n))} → {_shown(new[n])}" for n in differing),
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


def identity(method: Method) -> tuple[str, str]:
    """Setting and rule by which the audit groups records."""
    return setting_key(method.first), rule_key(method.first)


def name_apart(audit: Audit) -> Audit:
    """The same audit, where settings or methods with one label also say in what they differ: labels leave much out."""
    groups, keys = audit.groups, [identity(group) for group in audit.groups]
    settings = _apart([g.setting for g in groups], [k[0] for k in keys], [_setting_fields(g) for g in groups])
    places = [f"{setting}\0{group.label}" for setting, group in zip(settings, groups, strict=True)]
    labels = _apart(places, [k[1] for k in keys], [_rule_fields(g) for g in groups], joint=", ")
    names = list(zip(settings, [label.partition("\0")[2] for label in labels], strict=True))
    return replace(
        audit,
        methods=tuple(replace(m, setting=s, method=n) for m, (s, n) in zip(audit.methods, names, strict=True)),
        groups=tuple(replace(g, setting=s, label=n) for g, (s, n) in zip(groups, names, strict=True)),
    )


def _apart(
    labels: Sequence[str], keys: Sequence[str], values: Sequence[Mapping[str, Any]], *, joint: str = " · "
) -> list[str]:
    """Labels with the fields in which others of the same label and another key differ, and a number if none does."""
    found = list(labels)
    alike: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        alike.setdefault(label, []).append(i)
    for label, places in alike.items():
        different = len({keys[i] for i in places})
        if different < 2:
            continue
        differing = [name for name in values[places[0]] if len({repr(values[i].get(name)) for i in places}) > 1]
        without = [name for name in differing if name != TAP_NAMES]
        if len({repr([values[i].get(n) for n in without]) for i in places}) == different:
            differing = without
        first: dict[str, str] = {}
        times: Counter[str] = Counter()
        for i in places:
            if keys[i] not in first:
                name = joint.join([label, *(f"{_words(n)} {_shown(values[i].get(n))}" for n in differing)])
                times[name] += 1
                first[keys[i]] = f"{name} ({times[name]})" if times[name] > 1 else name
            found[i] = first[keys[i]]
    return found


def _setting_fields(method: Method) -> dict[str, Any]:
    if method.spec:
        return method.spec.setting(without=RULE_FIELDS)
    facts = method.facts
    widths = ", ".join(dict.fromkeys("×".join(map(str, shape)) for shape in facts.tap_shapes))
    return {"taps": len(facts.taps), "widths": widths, TAP_NAMES: ", ".join(facts.taps)}


def _rule_fields(method: Method) -> dict[str, Any]:
    if method.spec is None:
        return {f"rule_{name}": value for name, value in asdict(method.facts.rule).items()}
    return {name: getattr(method.spec, name) for name in RULE_FIELDS}


def _words(field: str) -> str:
    return field.replace("_", " ")


def _shown(value: object) -> str:
    text = str(value) if value not in (None, "", {}) else "none"
    return text if len(text) <= SHORT else f"{text[: SHORT // 2]}…{text[-SHORT // 2 :]}"
