"""What the page shows of verdicts, decisions, checks and changes, as plain data that the templates draw."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method and what may be concluded of it."""

    key: int
    """Its place in the audit, which names it everywhere on the page."""
    method: str
    word: str
    symbol: str
    codes: tuple[str, ...]
    beside: str
    """What stands beside the word: untested, muted, diverged."""
    cells: tuple[str, ...]
    """Of the columns in `overview`."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One cell of the decision table."""

    symbol: str
    conclusion: str
    when: str


@dataclass(frozen=True, kw_only=True)
class DecisionTable:
    """What each way of judging concludes of the methods of one setting."""

    criteria: tuple[str, ...]
    """Of the columns but the first, which is the whole protocol."""
    rows: tuple[tuple[str, tuple[Mark, ...]], ...]
    """Method, and a mark per column."""


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """What one check answers about one method, or several with one reason."""

    codes: tuple[str, ...]
    outcome: str
    cells: tuple[str, ...]
    """Of the columns in `checks`."""
    linked: bool


@dataclass(frozen=True, kw_only=True)
class CheckFacts:
    """What a check asks, why, and what to do."""

    code: str
    title: str
    question: str
    value_is: str
    why: str
    remedy: str
    limits: tuple[tuple[str, str, str, str], ...]
    """Name, value, meaning and published value of each threshold."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A method on both sides of a comparison, or on one."""

    setting: str
    method: str
    before: str
    before_symbol: str
    after: str
    after_symbol: str
    came: tuple[str, ...]
    went: tuple[str, ...]
    difference: str
    differs: str
    """Fields in which what was asked differs, where only the names are alike."""

    @property
    def is_change(self) -> bool:
        """Whether the word or the codes differ."""
        return self.before != self.after or bool(self.came or self.went)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What changed against another folder."""

    folder: str
    changes: tuple[Change, ...]
    only_here: tuple[tuple[str, str], ...]
    """Setting and method."""
    only_there: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]

    @property
    def changed(self) -> tuple[Change, ...]:
        """Those whose word or codes differ."""
        return tuple(change for change in self.changes if change.is_change)
