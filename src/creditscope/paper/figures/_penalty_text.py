"""Figure `penalty_rescue` as text: conditions by deep cosine, ρ, descent and accuracy, and the sentences."""

from rich.console import Group
from rich.text import Text

from creditscope.auditing.tables import fit_tables, render_plain
from creditscope.paper.figures._penalty import KINDS, Rescue
from creditscope.paper.figures._penalty_bars import COLUMNS, EXACT, METRICS, NULL, Bar, measure_bar, note_missing
from creditscope.paper.figures._penalty_captions import (
    caption_cost,
    caption_metrics,
    caption_trajectory,
    footer,
    title_cost,
)
from creditscope.paper.figures._words import spread_cell
from creditscope.plots._quantities import mean_sd
from creditscope.text import DASH

ROWS = ("early", NULL, EXACT, *(key for key in KINDS if key != "early"))


def write_rescue(found: Rescue) -> str:
    """The table and the sentences."""
    return render_plain(lambda width: _draw(found, width))


def _draw(found: Rescue, width: int) -> Group:
    columns = {f"deep {m.label.lower()}": [_deep(found, m, row) for row in ROWS] for m in METRICS}
    columns["test accuracy"] = [_accuracy(found, row) for row in ROWS]
    labels = [COLUMNS[row] if row in (NULL, EXACT) else found.label(row) for row in ROWS]
    said = [caption_trajectory(found), caption_metrics(found), f"{title_cost(found)}. {caption_cost(found)}"]
    notes = [*found.notes, *note_missing(found)]
    return Group(*fit_tables("condition", labels, columns, width), *map(Text, [*said, footer(found), *notes]))


def _deep(found: Rescue, metric, row: str) -> str:
    shown = row in (NULL, EXACT) or not KINDS[row].frozen
    return _cell(measure_bar(found, metric, row)) if shown else DASH


def _accuracy(found: Rescue, row: str) -> str:
    if row in (NULL, EXACT, "early"):
        return DASH
    mean, sd = mean_sd(found.accuracy(row))
    return _cell(Bar(float(mean), float(sd)))


def _cell(bar: Bar) -> str:
    """Mean ± sd with three decimals; a dash for a gap."""
    return DASH if bar.mean != bar.mean else spread_cell(bar.mean, bar.sd, digits=3)
