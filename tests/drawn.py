"""Read off axes what was drawn, and off captions what was stated."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from scipy import stats

from creditscope.plots import Caption, Statement
from creditscope.record import Record


def lines(ax: Axes, gid: str) -> list[np.ndarray]:
    """The data of all lines with this id, (2, points) each."""
    return [np.array(line.get_data(), dtype=float) for line in ax.lines if line.get_gid() == gid]


def line(ax: Axes, gid: str) -> np.ndarray:
    """The same, of the only one."""
    (found,) = lines(ax, gid)
    return found


def artist(ax: Axes, gid: str) -> Line2D:
    """The only line with this id."""
    (found,) = [line for line in ax.lines if line.get_gid() == gid]
    return found


def words(ax: Axes) -> list[str]:
    """What is written on the axes, without ticks, axis labels, the note, and the head of a panel of a page."""
    return [text.get_text() for text in ax.texts if text.get_gid() not in ("letter", "title", "column")]


def note(ax: Axes) -> str:
    """What is written above them, on one line."""
    return " ".join(ax.get_title(loc="left").split())


def head(ax: Axes) -> tuple[str, str]:
    """Letter and title of a panel of a page, on one line with plain spaces."""
    found = {text.get_gid(): " ".join(text.get_text().split()) for text in ax.texts}
    return found.get("letter", ""), found.get("title", "")


def stated(caption: Caption, panel: str | None = None) -> dict[tuple[str, str], Statement]:
    """Statements by quantity and group; those of a panel, or all."""
    return {(s.quantity, s.group): s for s in caption.statements if panel in (None, s.panel)}


def reach(values: Any, level: float = 0.975) -> float:
    """How far a t bound lies from the mean."""
    return stats.t.ppf(level, len(values) - 1) * stats.sem(values)


def of_rule(records: list[Record], rule: str) -> list[Record]:
    """Its runs with all blocks trained."""
    return [r for r in records if r.spec.rule == rule and not r.spec.frozen and r.spec.train_last == -1]
