"""The columns of an audit, each defined once: the terminal, the report, cards and pandas only lay them out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from creditscope.auditing.stats import Interval, write_interval, write_points
from creditscope.auditing.verdict import explain
from creditscope.errors import CreditscopeError
from creditscope.record.load import collection_paused
from creditscope.text import DASH, amount, number, points

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from creditscope.auditing.audit import MethodAudit
    from creditscope.auditing.decisions import Decision
    from creditscope.auditing.per_tap import TapAudit
    from creditscope.auditing.sensitivity import Range

OF_WORD = {"trustworthy": "✓", "walk back": "✗", "undecided": "?", "not measured": "○", "not judged": "–"}
OF_WORD |= {"healthy": "✓", "ill": "✗", "not trained yet": "–"}
"""Signs stand beside words, so that nothing is told by colour alone."""
OF_OUTCOME = {
    "issue": "✗",
    "tip": "ℹ",
    "passed": "✓",
    "undecided": "?",
    "not applicable": "–",
    "skipped": "○",
    "muted": "◌",
}
OF_ANSWER = {"carries": "✓", "below": "✗", "open": "?"}
"""Of a tap over seeds."""
OF_CONCLUSION = {"accepts": "✓", "walks back": "✗", "open": "?", "not applicable": "–", "muted": "◌"}

ENDINGS = {"low": "_low", "high": "_high"}
"""Of the names of parts in data; other parts go by the name of the column."""
BOUNDS = ("mean", "low", "high")


class Shown:
    """Something that is printed as wide as the terminal is, and otherwise as plain text."""

    def draw(self, width: int) -> "RenderableType":
        raise NotImplementedError

    def show(self, console: "Console | None" = None) -> None:
        """Print it to the terminal, or to another console."""
        self._show(console, self.draw)

    def _show(self, console: "Console | None", draw: "Callable[[int], RenderableType]") -> None:
        if console is None and not _has_rich():
            print(self)
            return
        from creditscope.auditing.printing import make_console

        console = console or make_console()
        with collection_paused():
            console.print(draw(console.width))

    def __str__(self) -> str:
        if not _has_rich():
            return self.without_rich()
        from creditscope.auditing.printing import render_plain

        return render_plain(self.draw)

    def without_rich(self) -> str:
        """As lines of text, where it can be said in such."""
        raise CreditscopeError("Expected rich to draw tables, but it is not installed. Run pip install rich.")

    def __init_subclass__(cls) -> None:
        cls._repr_pretty_ = Shown._repr_pretty_  # IPython takes the repr of a dataclass before that of its base

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def _has_rich() -> bool:
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


class ShownRows(Shown):
    """A printed table whose rows are dataclasses."""

    rows: tuple[Any, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]

    def frame(self):
        """A pandas table of the rows."""
        import pandas as pd

        return pd.DataFrame(self.to_dicts())


@dataclass(frozen=True)
class Column:
    """One column: its name in data, its heading for people, and its cell of a row as text."""

    name: str
    heading: str
    cell: Callable[[Any], str]
    read: Callable[[Any], Any] | None = None
    """Its value of a row, if not the attribute of that name."""
    parts: tuple[str, ...] = ()
    """What of the value is in data; all of it, if nothing is said."""
    words: bool = False
    """Whether it holds words, which may be broken over lines."""

    def value(self, row: Any) -> Any:
        """Of a row; None where there is none."""
        return self.read(row) if self.read else getattr(row, self.name)

    def data(self, row: Any) -> dict[str, Any]:
        """The value of a row as plain data, by name."""
        value = self.value(row)
        if not self.parts:
            return {self.name: value}
        return {
            f"{self.name}{ENDINGS.get(part, '')}": None if value is None else getattr(value, part)
            for part in self.parts
        }


def _column(name: str, heading: str, text: Callable[[Any], str] = str, **others: Any) -> Column:
    """A column whose text depends on its value alone; a dash stands for what is not there."""

    def cell(row: Any) -> str:
        found = column.value(row)
        return DASH if found is None else text(found)

    column = Column(name, heading, cell, **others)
    return column


def _interval(name: str, heading: str, form: str, parts: tuple[str, ...] = ("mean",)) -> Column:
    return _column(name, heading, lambda found: write_interval(found, form), parts=parts)


def _number(name: str, heading: str, form: str) -> Column:
    return _column(name, heading, lambda value: number(value, form))


def _accuracy(name: str, heading: str) -> Column:
    """With its number of seeds where not all of the method's have it."""
    return Column(name, heading, lambda m: write_interval(getattr(m, name), n=len(m.seeds)), parts=BOUNDS)


def _inexact(name: str, heading: str) -> Column:
    """A number of taps without exact credit."""
    return Column(name, heading, lambda tap: DASH if tap.exact else number(getattr(tap, name), ".3f"))


def _share_of_bp(m: "MethodAudit") -> str:
    """Only where BP certainly gains, so that a share of its gain says something."""
    has_room = m.bp_gain is not None and m.bp_gain.low is not None and m.bp_gain.low > 0
    return number(m.gain_share if has_room else None, ".0%")


def _named(*columns: Column) -> dict[str, Column]:
    return {column.name: column for column in columns}


METHODS = _named(
    _column("setting", "setting"),
    _column("method", "method"),
    _column("seeds", "seeds", read=lambda m: len(m.seeds)),
    _accuracy("accuracy", "accuracy"),
    _accuracy("frozen_own", "frozen, own stem"),
    _accuracy("frozen_bp", "frozen, BP stem"),
    _column("versus_bp", "− BP", write_points, parts=BOUNDS),
    _column("gain", "Δ", write_points, parts=BOUNDS),
    Column("gain_share", "Δ/Δ_BP", _share_of_bp),
    _column("trained_depth", "trained blocks", attrgetter("short"), parts=("low", "high")),
    _number("gamma", "Γ", "+.3f"),
    _number("gamma_inexact", "Γ inexact", "+.3f"),
    _number("growth", "growth", ".3g"),
    _number("g_top", "‖g_L‖", ".1e"),
    _column("verdict", "verdict", parts=("word",), words=True),
    _column("codes", "codes", read=lambda m: " ".join(m.verdict.codes)),
    _column("because", "because", read=explain, words=True),
)
"""Of a method."""


def _null(tap: "TapAudit") -> str:
    if tap.descent_null is None:
        return DASH
    return f"{number(tap.descent_null, '.3f')} ± {number(tap.descent_null_sd, '.3f')} sd"


TAPS = _named(
    Column("tap", "tap", lambda t: f"{t.tap} {t.name}{' (exact)' if t.exact else ''}"),
    _interval("cos", "cos", "+.3f", BOUNDS),
    Column("answer", "answer", lambda t: f"{OF_ANSWER[t.answer]} {t.answer}" if t.answer else DASH),
    _inexact("null_sd", "null sd"),
    _interval("z", "z", "+.1f"),
    _interval("cos_F", "cos_F", "+.3f"),
    _interval("cos_input", "cos, input", "+.3f"),
    _interval("beta", "β", "+.3f"),
    _interval("draw_noise", "draw noise", ".3f"),
    _interval("stage_cos", "cos of weights", "+.3f"),
    _inexact("stage_null_sd", "weights' null sd"),
    _interval("fresh_cos", "fresh cos", "+.3f"),
    _interval("acquired", "acquired", "+.3f"),
    _interval("permuted_cos", "permuted cos", "+.3f"),
    _interval("descent", "descent", ".3f"),
    Column("descent_null", "its null", _null),
    _interval("growth", "growth", ".3g"),
    _interval("h_norm", "‖h‖ per sample", ".2g"),
    _interval("g_norm", "‖g‖ per sample", ".1e"),
    _number("g_noise", "g_noise", ".0e"),
    _interval("common", "common", ".2f"),
    _interval("probe", "probe", ".3f"),
    _interval("probe_untrained", "probe, untrained", ".3f"),
    _interval("rewind_loss", "lost, put back", "+.3f"),
    _interval("skip_loss", "lost, skipped", "+.3f"),
)
"""Of a tap."""


def brief(found: Interval, form: str = "+.2f") -> str:
    """Mean and spread; a single seed has none."""
    return found.text(form) if found.low is not None else number(found.mean, form)


def _brief_size(name: str, heading: str) -> Column:
    return _column(name, heading, lambda found: brief(found, ".2g"))


def _cosine(tap: "TapAudit") -> str:
    if tap.cos is None:
        return DASH
    if tap.exact and round(tap.cos.mean, 3) == 1:
        return "= 1"
    sign = f"{OF_ANSWER[tap.answer]} " if tap.answer else ""
    beta = f", β {brief(tap.beta)}" if tap.beta else ""
    weights = f" ({number(tap.stage_cos.mean, '+.2f')})" if tap.stage_cos else ""
    return f"{sign}{brief(tap.cos)}{beta}{weights}"


def _acquired(tap: "TapAudit") -> str:
    return "=" if tap.exact else DASH if tap.acquired is None else brief(tap.acquired)


def _descent(tap: "TapAudit") -> str:
    return DASH if tap.descent is None else f"{brief(tap.descent)} ({number(tap.descent_null, '.2f')})"


def _lost(tap: "TapAudit") -> str:
    return write_points(tap.rewind_loss) + (f" ({points(tap.skip_loss.mean)})" if tap.skip_loss else "")


BRIEF_TAPS = _named(
    Column("cos", "cos(a_l, g_l)", _cosine),
    Column("acquired", "acquired", _acquired),
    Column("descent", "descent", _descent),
    Column("rewind_loss", "block put back", _lost),
    _brief_size("h_norm", "‖h_l‖"),
    _brief_size("growth", "growth"),
    _brief_size("g_norm", "‖g_l‖"),
)
"""Of a tap in one cell with what belongs to it, for tables with a column per tap."""

RUNGS = _named(
    _column("trained", "last blocks trained"),
    _interval("accuracy", "accuracy", ".3f"),
    _interval("below_full", "full run − this one, paired", "+.3f"),
)
"""Of a rung of the depth ladder."""


def _share(name: str, heading: str) -> Column:
    return _column(name, heading, "{:.0%}".format)


MODULES = _named(
    _column("name", "module"),
    _column("kind", "kind"),
    _column("codes", "checks", " ".join),
    _column("rms", "RMS", lambda value: amount(value, 2)),
    _column("dispersion", "differ", lambda value: amount(value, 2)),
    _share("dead", "dead"),
    _share("saturated", "at bounds"),
    _column("gradient", "gradient", lambda value: amount(value, 2)),
    _column("update", "update", lambda value: amount(value, 2)),
)
"""Of a module of a watched network."""
ABOUT_MODULES = (
    "RMS of the output · differ: dispersion over rows (tokens, where there are some) over the size · dead: share of "
    "units that are zero in every row · at bounds: share of entries of a sigmoid or tanh · gradient: ‖∇W‖·‖W‖ over the "
    "largest · update: ‖ΔW‖/‖W‖ since the snapshot before"
)

FINDINGS = _named(
    Column("code", "check", lambda f: f"{f.code} {f.title}", words=True),
    _column("outcome", "outcome", lambda outcome: f"{OF_OUTCOME[outcome]} {outcome}", words=True),
    _column("message", "what it found", words=True),
    Column("value", "value", lambda f: "" if f.value is None else amount(f.value)),
    _column("limit", "limit", words=True),
    _column("fired", "first an issue", words=True),
)
"""Of what a check found of a method."""


def mark(row: "Decision") -> str:
    """A cell of the decision table but for the epochs: a sign, or the value of what concludes nothing."""
    return number(row.value, ".2f") if row.conclusion == "no verdict" else OF_CONCLUSION[row.conclusion]


def _beyond(one: "Range") -> str:
    return " · ".join(f"{side}: {said}" for side, said in (("below", one.below), ("above", one.above)) if said)


def _bound(name: str, heading: str) -> Column:
    return Column(name, heading, lambda row: "any" if getattr(row, name) is None else f"{getattr(row, name):.4g}")


RANGES = _named(
    _column("name", "threshold"),
    _column("checks", "check", ", ".join, words=True),
    _column("value", "value", "{:g}".format),
    _bound("low", "from"),
    _bound("high", "to"),
    _column("beyond", "beyond it", read=_beyond, words=True),
)
"""Of the range of a threshold."""


def method_frame(methods: Sequence["MethodAudit"]):
    """A pandas table, one row per method; per-tap columns end in the tap's number."""
    import pandas as pd

    about, per_tap = ([c for c in found.values() if c.name not in ("because", "tap")] for found in (METHODS, TAPS))
    rows = []
    for m in methods:
        row = {name: value for column in about for name, value in column.data(m).items()}
        cells = ((tap, column.data(tap)) for column in per_tap for tap in m.per_tap)
        rows.append(row | {f"{name}_{tap.tap}": value for tap, found in cells for name, value in found.items()})
    return pd.DataFrame(rows)
