"""The one flat table: a row a method, by a name that does not change with the data, and what stands in it."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markupsafe import Markup

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.checks import Finding, Outcome
from creditscope.auditing.methods import Method, rule_key, setting_key
from creditscope.auditing.strip import Strip, make_strip, short, short_number
from creditscope.auditing.verdict import explain, rests_on_checks
from creditscope.report.next_run import find_hopeless, list_needs, write_command
from creditscope.report.sparkline import draw_sparkline
from creditscope.text import DASH

LETTERS = 10
"""Of a digest that names a row."""
TAG_BYTES = 700
"""Of a row but for its words and its sparkline."""

HEADS = {"reference": "reference", "depth": "use of depth"}
"""Of questions that do not go by the label of their answer."""


@dataclass(frozen=True)
class Row:
    """One method as the table shows it."""

    id: str
    found: MethodAudit
    method: Method
    command: str
    """What to run next, for what is not measured or open."""
    recipe: str
    """What of the setting tells it from others of this task and net."""
    title: str
    """Of its setting, as `--only` knows it: without what tells settings of one title apart."""

    @cached_property
    def strip(self) -> Strip:
        return make_strip(self.found)

    @cached_property
    def spark(self) -> Markup:
        return draw_sparkline(self.strip.taps)

    @property
    def weight(self) -> int:
        """About the bytes that it takes on the page."""
        words = [self.name, self.recipe, self.title, self.spark, *(text for reason in self.reasons for text in reason)]
        return TAG_BYTES + sum(len(text.encode(errors="replace")) for text in words)

    @property
    def accuracy(self) -> str:
        return short(self.strip.accuracy)

    @property
    def bar(self) -> str:
        """Of the accuracy, and where frozen blocks end, as variables of the style."""
        accuracy, frozen = self.strip.accuracy, self.strip.frozen
        parts = {"a": accuracy.mean if accuracy else None, "f": frozen}
        return ";".join(f"--{name}:{100 * value:.1f}%" for name, value in parts.items() if value is not None)

    @property
    def name(self) -> str:
        return self.strip.name

    @property
    def gamma(self) -> str:
        """Not of a network, whose taps are all told the gradient."""
        return DASH if self.found.network else short_number(self.strip.gamma, "+.2f")

    @property
    def rule(self) -> str:
        return self.method.facts.rule.label

    @property
    def task(self) -> str:
        return self.method.spec.task if self.method.spec else DASH

    @property
    def net(self) -> str:
        """A watched model that is judged by its rule goes by its folder, a network has that for its name."""
        return self.method.spec.net if self.method.spec else "watched" if self.found.network else self.found.setting

    @property
    def depth(self) -> int:
        spec = self.method.spec
        asked = spec.net_options.get("depth") if spec else None
        return asked if isinstance(asked, int) else len(self.found.taps) - 1

    @property
    def reasons(self) -> list[tuple[str, str, str]]:
        """All of them: code, headline and message of each check behind the word, what to look at first before others.

        Where divergence or nothing at all explains it, one sentence without a code before them.
        """
        behind = sorted((f for f in self.found.findings if f.code in self.found.verdict.codes), key=lambda f: f.rank)
        told = [(f.code, f.title if f.is_issue else f"{f.title}?", f.message.rstrip(".")) for f in behind]
        return told if rests_on_checks(self.found) else [("", explain(self.found), ""), *told]

    @property
    def hopeless(self) -> Finding | None:
        """An open check that more seeds would not settle."""
        return find_hopeless(self.found.findings)

    def codes(self, *outcomes: Outcome) -> str:
        """Of the checks with these outcomes that are no mere advice."""
        return " ".join(f.code for f in self.found.findings if f.outcome in outcomes and not f.advisory)

    @property
    def fired(self) -> str:
        return self.codes(Outcome.ISSUE)

    @property
    def open(self) -> str:
        return self.codes(Outcome.UNDECIDED)

    @property
    def lacks(self) -> str:
        return self.codes(Outcome.SKIPPED)


def list_rows(audit: Audit, folder: str, titles: Sequence[str]) -> list[Row]:
    """A row for every method, in the order of the audit; `titles` are those of their settings."""
    names, recipes = name_rows(audit.groups, folder), tell_recipes(audit.groups)
    parts = zip(names, audit.methods, audit.groups, recipes, titles, strict=True)
    return [
        Row(name, found, own, write_command(own, found, folder), recipe, title)
        for name, found, own, recipe, title in parts
    ]


def name_questions(rows: Sequence[Row]) -> list[str]:
    """The heads of the three answers; those of networks and of methods both where they stand in one table."""
    columns = zip(*([HEADS.get(a.key, a.label) for a in row.strip.answers] for row in rows), strict=True)
    return [" / ".join(dict.fromkeys(column)).capitalize() for column in columns]


def tell_recipes(groups: Sequence[Method]) -> list[str]:
    """Of each setting but task, net and depth what not every setting of its task and net has; of one alone, all."""
    members: dict[tuple[str, str], dict[str, list[str]]] = {}
    for method in groups:
        if method.spec:
            members.setdefault((method.spec.task, method.spec.net), {})[method.setting] = _split_setting(method)
    told = {}
    for settings in members.values():
        shared = set.intersection(*map(set, settings.values())) if len(settings) > 1 else set()
        told |= {name: " · ".join(part for part in parts if part not in shared) for name, parts in settings.items()}
    return [told.get(method.setting, "") for method in groups]


def _split_setting(method: Method) -> list[str]:
    """The parts of its name, options of task and net among them, but for what has a column."""
    task, net, *others = method.setting.split(" · ")
    options = [part.removesuffix(")").partition(" (")[2].split(", ") for part in (task, net)]
    return [*(o for part in options for o in part if o and not o.startswith("depth ")), *others]


def name_rows(groups: Sequence[Method], folder: str = "") -> list[str]:
    """A digest of what was asked, the same in every report; twins that differ in nothing are counted."""
    times: Counter[str] = Counter()
    names = []
    for method in groups:
        name = f"m{hashlib.sha256(_identity(method, folder).encode(errors='replace')).hexdigest()[:LETTERS]}"
        times[name] += 1
        names.append(name if times[name] == 1 else f"{name}-{times[name]}")
    return names


def _identity(method: Method, folder: str) -> str:
    """What tells a method from others; a watched model goes by its place in the folder, wherever that lies."""
    first = method.first
    if first.spec is None:
        return repr((_place(first.path, folder), first.facts.taps, first.facts.tap_shapes, rule_key(first)))
    return f"{setting_key(first)} {rule_key(first)}"


def _place(path: Path | None, folder: str) -> str:
    """Where it lies in the folder; of the folder itself, or one elsewhere, its name."""
    if path is None:
        return ""
    inside = folder and path.is_relative_to(folder) and path != Path(folder)
    return path.relative_to(folder).as_posix() if inside else path.name


@dataclass(frozen=True)
class Need:
    """What methods lack, the option that measures it, and the command of the first of them."""

    option: str
    methods: int
    command: str


def list_next(rows: Sequence[Row]) -> list[Need]:
    """What would measure those that are not measured and can be, most of them first."""
    lacking = [row for row in rows if row.found.verdict.word == "not measured" and row.command]
    options = Counter(need for row in lacking for need in list_needs(row.found.findings))
    first = {option: next(r for r in lacking if option in list_needs(r.found.findings)) for option in options}
    return [Need(option, many, first[option].command) for option, many in options.most_common()]
