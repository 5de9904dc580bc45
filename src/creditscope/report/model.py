"""What the page shows, as plain data: built by one file per section, drawn by the templates."""

from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup


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
class Legend:
    """The colours of one quantity in one setting."""

    quantity: str
    symbol: str
    title: str
    kind: str
    ticks: tuple[tuple[float, str], ...]
    """Place from 0 to 1, and label."""
    has_zero: bool


@dataclass(frozen=True, kw_only=True)
class Heat:
    """One small multiple."""

    svg: Markup | None
    missing: str
    """Why there is none."""


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """A method's heatmaps, and its final values as a table."""

    key: int
    method: str
    word: str
    symbol: str
    heats: tuple[Heat, ...]
    seeds: str
    alike: str
    """Counts that are the same at every tap."""
    head: tuple[str, ...]
    taps: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One quantity over training."""

    title: str
    svg: Markup


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """What one check answers about one method, or several with one reason."""

    codes: tuple[str, ...]
    outcome: str
    cells: tuple[str, ...]
    """Of the columns in `checks`."""
    linked: bool


@dataclass(frozen=True, kw_only=True)
class ProvenanceRow:
    """Where one method's runs come from."""

    method: str
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CardText:
    """A reporting card to copy; None where the page would grow too large."""

    key: int
    method: str
    text: str | None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything about one task, net and recipe."""

    key: int
    name: str
    short: str
    """Task and net, without options that nearly all settings of the page share."""
    rows: tuple[Row, ...]
    counts: tuple[tuple[str, str, int], ...]
    """Symbol, word and number of methods."""
    decisions: DecisionTable
    legends: tuple[Legend, ...]
    layer_notes: tuple[str, ...]
    """Which quantities have no heatmaps, and why."""
    layers: tuple[LayerRow, ...]
    epochs: tuple[int, ...]
    charts: tuple[Chart, ...]
    checks: tuple[tuple[int, str, tuple[CheckRow, ...]], ...]
    spec: tuple[tuple[str, str], ...]
    provenance: tuple[ProvenanceRow, ...]
    cards: tuple[CardText, ...]

    @property
    def rest(self) -> str:
        """The recipe."""
        return " · ".join(self.name.split(" · ")[2:])


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


@dataclass(frozen=True, kw_only=True)
class Report:
    """The page."""

    folder: str
    made: str
    version: str
    facts: tuple[tuple[str, str], ...]
    answer: str
    settings: tuple[Setting, ...]
    checks: tuple[CheckFacts, ...]
    origins: tuple[tuple[str, ...], ...]
    """What the runs were made with: key, versions and devices, number of runs."""
    notes: tuple[str, ...]
    skipped: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Code, reason, methods."""
    problems: tuple[str, ...]
    changed_limits: tuple[str, ...]
    comparison: Comparison | None
    data: dict[str, Any] = field(repr=False)
    """What the script looks cells up in."""

    @property
    def cards_left_out(self) -> int:
        """Methods whose card the page has no room for."""
        return sum(card.text is None for setting in self.settings for card in setting.cards)
