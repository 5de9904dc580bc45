"""Per-tap tables: a mean over layers is never shown without the layers."""

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.per_tap import TapAudit
from creditscope.auditing.stats import DRAWS, Interval
from creditscope.auditing.symbols import OF_ANSWER
from creditscope.auditing.tables import fit_tables, note
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.told import POWER, seen_above
from creditscope.text import DASH, number, span

SIZES: dict[str, Callable[[TapAudit], Interval | None]] = {
    "‖h_l‖": lambda tap: tap.h_norm,
    "growth": lambda tap: tap.growth,
    "‖g_l‖": lambda tap: tap.g_norm,
}


def tap_tables(methods: Sequence[MethodAudit], limits: Thresholds, width: int) -> Group:
    """Cosines; and, where they were measured, alignment acquired and descent."""
    parts: list[RenderableType] = [*_tables("cos(a_l, g_l)", methods, _cosine, width)]
    parts.append(note(_about_cosines(methods, limits)))
    if _any(methods, lambda tap: tap.acquired):
        parts += _tables("acquired", methods, _acquired, width)
        parts.append(note(f"alignment acquired: cos minus that of fresh feedback, in each seed; {_spread(methods)}"))
    if _any(methods, lambda tap: tap.descent):
        parts += _tables("descent", methods, _descent, width)
        parts.append(
            note(
                "best decrease of the loss along −a over that along −g; (null) mean of the same for credit turned at "
                f"random; {_spread(methods)}"
            )
        )
    return Group(*parts)


def _about_cosines(methods: Sequence[MethodAudit], limits: Thresholds) -> str:
    """What the marks mean, and once what so many seeds can see."""
    taps = [tap for m in methods for tap in m.per_tap if not tap.exact]
    said = [
        f"mean {_spread(methods)}",
        f"{OF_ANSWER['carries']} carries credit, {OF_ANSWER['below']} below δ = {limits.alignment:g}, "
        f"{OF_ANSWER['open']} open (CS005)",
        "(cosine of the stage's weights)",
        "= exact credit",
    ]
    if any(tap.beta for tap in taps):
        said.insert(2, "β: projection of the mean of the rule's own draws on the gradient, which is judged")
    nulls = [tap.null_sd for tap in taps if tap.answer and tap.null_sd]
    if nulls:
        least, most = (number(seen_above(null, limits), ".3f") for null in (min(nulls), max(nulls)))
        said.append(f"seen above chance with {100 * POWER:.0f} % power: {span(least, most, ' to ')}")
    return " · ".join(said)


def size_tables(methods: Sequence[MethodAudit], width: int) -> Group:
    """Where all credit is exact a cosine says nothing: sizes of states and gradients instead, a row per tap."""
    most = max(methods, key=lambda m: len(m.taps))
    columns = {
        f"{f'{m.method}: ' if len(methods) > 1 else ''}{name}": [
            _size(read(m.per_tap[i])) if i < len(m.taps) else "" for i in range(len(most.taps))
        ]
        for m in methods
        for name, read in SIZES.items()
        if name != "growth" or m.growth is not None
    }
    labels = [f"tap {i} {name}" for i, name in enumerate(most.taps)]
    caption = (
        "median per sample of the state and of the exact gradient, geometric mean over seeds; – is 0 or not measured · "
        "growth: RMS ratio over a residual block"
    )
    return Group(*fit_tables("size", labels, columns, width), note(caption))


def _tables(title: str, methods: Sequence[MethodAudit], cell: Callable[[TapAudit], str], width: int):
    most = max(methods, key=lambda m: len(m.taps))
    columns = {
        f"tap {i} {name}": [cell(m.per_tap[i]) if i < len(m.taps) else "" for m in methods]
        for i, name in enumerate(most.taps)
    }
    return fit_tables(title, [m.method for m in methods], columns, width)


def _cosine(tap: TapAudit) -> str:
    if tap.cos is None:
        return DASH
    if tap.exact and round(tap.cos.mean, 3) == 1:
        return "= 1"
    mark = f"{OF_ANSWER[tap.answer]} " if tap.answer else ""
    beta = f", β {_short(tap.beta)}" if tap.beta else ""
    weights = f" ({number(tap.stage_cos.mean, '+.2f')})" if tap.stage_cos else ""
    return f"{mark}{_short(tap.cos)}{beta}{weights}"


def _acquired(tap: TapAudit) -> str:
    return "=" if tap.exact else DASH if tap.acquired is None else _short(tap.acquired)


def _descent(tap: TapAudit) -> str:
    return DASH if tap.descent is None else f"{_short(tap.descent)} ({number(tap.descent_null, '.2f')})"


def _size(interval: Interval | None) -> str:
    if interval is None:
        return DASH
    return interval.text(".2g") if interval.low is not None else number(interval.mean, ".2g")


def _short(interval: Interval) -> str:
    """Mean and spread; a single seed has none."""
    return interval.text("+.2f") if interval.low is not None else number(interval.mean, "+.2f")


def _any(methods: Sequence[MethodAudit], read: Callable[[TapAudit], Interval | None]) -> bool:
    return any(read(tap) for m in methods for tap in m.per_tap)


def _spread(methods: Sequence[MethodAudit]) -> str:
    """How the spread is made, read off the intervals themselves."""
    found = [tap.cos for m in methods for tap in m.per_tap if tap.cos]
    if not any(interval.low is not None for interval in found):
        return "of one seed"
    if any(interval.kind == "bootstrap" for interval in found):
        return f"[95 % percentile bootstrap over seeds, {DRAWS:,} draws, test set fixed]"
    return "± 95 % t interval over seeds (ddof 1), test set fixed"
