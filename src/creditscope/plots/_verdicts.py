"""Verdicts, a row per method."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from creditscope.auditing import audit
from creditscope.auditing.verdict import Verdict, Word
from creditscope.plots._lines import Line, gather, lines_of
from creditscope.plots._panel import new_axes
from creditscope.plots._style import AMBER, BODY, GREY, text_width

COLOURS: dict[Word, str] = {
    "trustworthy": "#2f7d32",
    "walk back": "#a8322a",
    "undecided": AMBER,
    "not measured": GREY,
    "not judged": GREY,
}
ROW = 0.16
"""Height of a row, inches."""
KEY, GAP = 0.36, 0.2
"""Room for a method's line and marker, and between columns, inches."""


def verdicts(records: Any, *, ax: Axes | None = None) -> Axes:
    """A row per method: its line and marker, its name, its verdict and the codes behind it.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> [text.get_text() for text in plots.verdicts(runs).texts][:2]
    ['BP', 'not measured']
    """
    found = gather(records)
    lines, judged = lines_of(found), [method.verdict for method in audit(found).methods]
    name, word, codes = _columns(lines, judged)
    width = codes + max(text_width(_codes(verdict), size=BODY) for verdict in judged)
    with new_axes(ax, (width + 0.2, ROW * len(lines) + 0.1)) as ax:
        ax.set(xlim=(0, 1), ylim=(len(lines) - 0.5, -0.5))
        ax.axis("off")
        inches = _inches(ax)
        for row, (line, verdict) in enumerate(zip(lines, judged, strict=True)):
            look = line.look
            style = {"color": look.colour, "ls": line.dashes, "marker": look.marker, "lw": 1.1, "ms": 4.0}
            ax.plot([0.02, 0.15, 0.28], [row] * 3, markevery=[1], transform=inches, clip_on=False, **style)
            where: dict[str, Any] = {"transform": inches, "va": "center", "size": BODY, "in_layout": False}
            ax.text(name, row, look.label, color=look.colour, **where)
            ax.text(word, row, verdict.word, color=COLOURS[verdict.word], weight="bold", **where)
            ax.text(codes, row, _codes(verdict), color=GREY, **where)
    return ax


def _codes(verdict: Verdict) -> str:
    """What a verdict says beside its word."""
    return str(verdict).removeprefix(verdict.word).strip()


def _columns(lines: Sequence[Line], judged: Sequence[Verdict]) -> tuple[float, float, float]:
    """Where names, words and codes begin, inches."""
    names = max(text_width(line.look.label, size=BODY) for line in lines)
    words = max(text_width(verdict.word, size=BODY, bold=True) for verdict in judged)
    return KEY, KEY + names + GAP, KEY + names + words + 2 * GAP


def _inches(ax: Axes) -> Transform:
    """Across in inches from the left of the axes, down in rows."""
    left = ScaledTranslation(0, 0, ax.transAxes)  # pyright: ignore[reportArgumentType]
    across = ax.figure.dpi_scale_trans + left
    return blended_transform_factory(across, ax.transData)
