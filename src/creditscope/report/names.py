"""Which methods are the same, and names that tell apart those that are not: labels leave out what is rarely needed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from creditscope.auditing.audit import Audit
from creditscope.auditing.methods import Method, rule_key, setting_key
from creditscope.record.spec import RULE_FIELDS

SHORT = 24
"""Letters of a value that is shown to tell names apart."""

NEARLY_ALL = 0.8
"""Share of settings whose common options a heading leaves out."""
TAP_NAMES = "tap_names"
"""Long, so that they are shown only where nothing else differs."""


def identity(method: Method) -> tuple[str, str]:
    """Setting and rule by which the audit groups records."""
    return setting_key(method.first), rule_key(method.first)


def name_apart(audit: Audit) -> Audit:
    """The same audit, where settings or methods with one label also say in what they differ."""
    keys = [identity(group) for group in audit.groups]
    settings = _apart(
        [g.setting for g in audit.groups], [k[0] for k in keys], [_setting_fields(g) for g in audit.groups]
    )
    places = [f"{setting}\0{group.label}" for setting, group in zip(settings, audit.groups, strict=True)]
    labels = _apart(places, [k[1] for k in keys], [_rule_fields(g) for g in audit.groups], joint=", ")
    labels = [label.partition("\0")[2] for label in labels]
    names = list(zip(settings, labels, strict=True))
    return replace(
        audit,
        methods=tuple(replace(m, setting=s, method=n) for m, (s, n) in zip(audit.methods, names, strict=True)),
        groups=tuple(replace(g, setting=s, label=n) for g, (s, n) in zip(audit.groups, names, strict=True)),
    )


def _apart(
    labels: Sequence[str], keys: Sequence[str], values: Sequence[Mapping[str, Any]], *, joint: str = " · "
) -> list[str]:
    """Labels with the fields in which others of the same label and another key differ, and a number if none does."""
    found = list(labels)
    for label in set(labels):
        places = [i for i, other in enumerate(labels) if other == label]
        if len({keys[i] for i in places}) < 2:
            continue
        differing = [name for name in values[places[0]] if len({repr(values[i].get(name)) for i in places}) > 1]
        without = [name for name in differing if name != TAP_NAMES]
        if len({repr([values[i].get(n) for n in without]) for i in places}) == len({keys[i] for i in places}):
            differing = without
        first: dict[str, str] = {}
        for i in places:
            name = joint.join([label, *(f"{_words(n)} {_shown(values[i].get(n))}" for n in differing)])
            taken = {other for key, other in first.items() if key != keys[i]}
            number = next(k for k in range(1, len(places) + 1) if _numbered(name, k) not in taken)
            found[i] = first.setdefault(keys[i], _numbered(name, number))
    return found


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} ({number})"


def short_names(settings: Sequence[str]) -> dict[str, str]:
    """Task and net of every setting, without the options that nearly all of that task or net share.

    >>> list(short_names(["cora · gcn (depth 2, width 64) · lr 1", "cora · gcn (depth 4, width 64) · lr 1"]).values())
    ['cora · gcn (depth 2)', 'cora · gcn (depth 4)']
    """
    heads = {setting: setting.split(" · ")[:2] for setting in settings}
    by_name: dict[str, list[list[str]]] = {}
    for part in [part for head in heads.values() for part in head]:
        name, options = _split_options(part)
        by_name.setdefault(name, []).append(options)
    usual = {name: _usual(found) for name, found in by_name.items()}

    def shorten(part: str) -> str:
        name, options = _split_options(part)
        kept = ", ".join(option for option in options if option not in usual[name])
        return f"{name} ({kept})" if kept else name

    return {setting: " · ".join(map(shorten, head)) for setting, head in heads.items()}


def _split_options(part: str) -> tuple[str, list[str]]:
    name, _, listed = part.removesuffix(")").partition(" (")
    return name, listed.split(", ") if listed else []


def _usual(found: Sequence[Sequence[str]]) -> set[str]:
    """Options that nearly all have; none where all are alike, since there is nothing to tell apart."""
    if len(set(map(tuple, found))) == 1:
        return set()
    counts = Counter(option for options in found for option in options)
    return {option for option, count in counts.items() if count >= NEARLY_ALL * len(found)}


def differences(before: Method, after: Method) -> str:
    """Fields of setting and rule in which two methods differ, as "name before → after"."""
    old, new = ({**_setting_fields(m), **_rule_fields(m)} for m in (before, after))
    differing = [name for name in new if repr(old.get(name)) != repr(new[name])]
    return ", ".join(f"{_words(n)} {_shown(old.get(n))} → {_shown(new[n])}" for n in differing)


def _setting_fields(method: Method) -> dict[str, Any]:
    facts, spec = method.facts, method.spec
    if spec is None:
        return {"taps": len(facts.taps), "widths": _widths(facts.tap_shapes), TAP_NAMES: ", ".join(facts.taps)}
    return spec.setting(without=RULE_FIELDS)


def _widths(shapes: Sequence[Sequence[int]]) -> str:
    return ", ".join(dict.fromkeys("×".join(map(str, shape)) for shape in shapes))


def _rule_fields(method: Method) -> dict[str, Any]:
    if method.spec is None:
        return {f"rule_{name}": value for name, value in asdict(method.facts.rule).items()}
    return {name: getattr(method.spec, name) for name in RULE_FIELDS}


def _words(field: str) -> str:
    return field.replace("_", " ")


def _shown(value: object) -> str:
    text = str(value) if value not in (None, "", {}) else "none"
    return text if len(text) <= SHORT else f"{text[: SHORT // 2]}…{text[-SHORT // 2 :]}"
