"""Second section: what each layer was told over training, and its final values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.columns import OF_ANSWER, OF_WORD
from creditscope.auditing.methods import Method
from creditscope.auditing.stats import Interval, geometric_interval, write_interval, write_points
from creditscope.plots._quantities import is_size, title
from creditscope.report.colours import SIGNED, Scale, log_scale
from creditscope.report.heatmap import draw_heatmap
from creditscope.report.history import SYMBOLS, LayerHistory
from creditscope.text import DASH, count, name_all, number

NAMES: tuple[str, ...] = (
    "tap",
    "cos",
    "null sd",
    "cos of weights",
    "lost, put back (pp)",
    "lost, skipped (pp)",
    "‖g‖",
    "‖h‖",
    "ρ",
    "rows used",
    "rows without gradient",
    "g_noise",
    "n",
)
"""Columns of the final values."""
FEWEST_EPOCHS = 3
"""Of a quantity that is drawn over epochs, where more were measured."""
COUNTS = ("rows used", "rows without gradient", "n")
"""Said once where they are the same at every tap."""


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """A method's heatmaps, and its final values as a table."""

    key: int
    method: str
    word: str
    symbol: str
    heats: tuple[Markup | None, ...]
    """Of each quantity that the setting shows; None where it was not measured."""
    seeds: str
    alike: str
    """Counts that are the same at every tap."""
    head: tuple[str, ...]
    taps: tuple[tuple[str, ...], ...]


def make_scales(histories: Sequence[LayerHistory]) -> tuple[dict[str, Scale], list[str]]:
    """The colours of each quantity that a setting shows; and a line for each that was measured and is not shown.

    Shown is what some method has at enough of its epochs for a map; a cosine only if it is not 1 by construction.
    """
    scales, notes = {}, []
    for quantity in SYMBOLS:
        found = [(history.epochs_with(quantity), history.epochs) for history in histories]
        measured = sorted({epoch for epochs, _ in found for epoch in epochs})
        if not measured:
            continue
        if quantity == "cos" and all(history.all_exact for history in histories):
            notes.append("Every tap is handed the exact gradient: the cosine is 1 by construction.")
        elif any(epochs and len(epochs) >= min(FEWEST_EPOCHS, len(every)) for epochs, every in found):
            values = [history.means[quantity].ravel() for history in histories if quantity in history.means]
            scales[quantity] = log_scale(np.concatenate(values)) if is_size(quantity) else SIGNED
        else:
            when = name_all("epoch", measured)
            notes.append(f"{title(quantity)} was measured at {when} only, too few for a map: it is in the tables.")
    return scales, notes


def layer_row(
    key: int, found: MethodAudit, method: Method, history: LayerHistory, scales: Mapping[str, Scale]
) -> LayerRow:
    """A method's small multiples, of the quantities that its setting shows."""
    alike, head, cells = tap_table(found, method)
    return LayerRow(
        key=key,
        method=found.method,
        word=found.verdict.word,
        symbol=OF_WORD[found.verdict.word],
        heats=tuple(
            draw_heatmap(history, quantity, scale, key=key, method=found.method) if quantity in history.means else None
            for quantity, scale in scales.items()
        ),
        seeds=count(len(history.seeds), "seed"),
        alike=alike,
        head=head,
        taps=cells,
    )


def tap_table(found: MethodAudit, method: Method) -> tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Final values: counts that are the same at every tap in words, the head, and a row per tap, deepest first.

    Means with 95 % intervals over seeds, sizes on a log scale; columns without a value are left out.
    """
    if not method.whole:
        return "no seed came to its end", (), ()
    rows = _tap_rows(found, method)
    columns: dict[str, tuple[str, ...]] = dict(zip(NAMES, zip(*rows, strict=True), strict=True)) if rows else {}
    alike = {name: columns[name][0] for name in COUNTS if columns and len(set(columns[name])) == 1}
    told = ("cos", "null sd", "cos of weights") if len(found.exact_taps) == len(found.taps) else ()
    kept = [n for n, cells in columns.items() if n not in (*alike, *told) and any(cell != DASH for cell in cells)]
    said = ", ".join([*(["every tap is handed the exact gradient"] if told else []), *map(" ".join, alike.items())])
    return said, tuple(kept), tuple(zip(*(columns[name] for name in kept), strict=True))


def _tap_rows(found: MethodAudit, method: Method) -> list[tuple[str, ...]]:
    lasts = [record.last.taps for record in method.whole]
    some_inexact = len(found.exact_taps) < len(found.taps)
    rows = []
    for tap in reversed(found.per_tap):
        at = tap.tap
        rows.append(
            (
                f"{tap.tap} {tap.name}{' (exact)' if tap.exact and some_inexact else ''}",
                f"{OF_ANSWER[tap.answer] if tap.answer else ''} {counted(tap.cos, len(lasts), '+.3f')}".strip(),
                DASH if tap.exact else number(tap.null_sd, ".3f"),
                counted(tap.stage_cos, len(lasts), "+.3f"),
                write_points(tap.rewind_loss),
                write_points(tap.skip_loss),
                _size([t.g_norm[at] for t in lasts], ".2g"),
                _size([t.h_norm[at] for t in lasts], ".3g"),
                counted(tap.rho, len(lasts), "+.3f"),
                f"{min(t.rows_used[at] for t in lasts):,}",
                f"{max(t.rows_no_gradient[at] for t in lasts):,}",
                number(tap.g_noise, ".0e"),
                str(len(lasts)),
            )
        )
    return rows


def _size(values: Sequence[float | None], form: str) -> str:
    """A geometric mean with its interval; where sizes are exactly 0, in how many seeds."""
    known = [v for v in values if v is not None]
    zeros = known.count(0)
    if zeros:
        return "0" if zeros == len(values) else f"0 in {zeros} of {count(len(values), 'seed')}"
    return counted(geometric_interval(known) if known else None, len(values), form)


def counted(found: Interval | None, n: int, form: str = ".3f") -> str:
    """In words, with its number of seeds where that is not `n`.

    >>> counted(Interval(0.5, 0.4, 0.6, 3), 20), counted(Interval(0.5, 0.4, 0.6, 3), 3)
    ('0.500 ± 0.100 (n = 3)', '0.500 ± 0.100')
    """
    said = write_interval(found, form)
    return said if found is None or found.n == n or "n =" in said else f"{said} (n = {found.n})"
