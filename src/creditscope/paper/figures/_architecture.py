"""The architecture drawing: stem → blocks → head, and one lane per rule that shows where it sends credit.

Coordinates are about inches. A lane shows taps as dots below the forward pass's own; a solid arrow carries the
exact gradient, a dashed one passes a fixed random matrix B.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from creditscope.paper.figures._layout import NARROW
from creditscope.plots._style import FAINT, GREY, INK, SMALL, text_width
from creditscope.record import Facts
from creditscope.text import subscript

FORWARD, LANE, HEADING = 0.55, 0.40, 0.16
"""Heights of the forward pass, of one lane and of the heading, inches."""
LABELS = 1.35
"""Room at the left for what a lane is called and does; on a narrow page for its name alone."""
MOST_BLOCKS = 5
"""Deeper nets are drawn with their middle left out."""
DOT = 0.045


@dataclass(frozen=True)
class Lane:
    """One rule: its label and colour, and the facts of its runs, or why there are none."""

    label: str
    colour: str
    facts: Facts | str


@dataclass(frozen=True)
class Track:
    """Where a lane runs: (tap, x) from left to right, x of the error e, and its height."""

    taps: tuple[tuple[int, float], ...]
    error: float
    y: float
    width: float
    """Of the page, inches."""


def architecture_height(lanes: int) -> float:
    """Inches the drawing needs."""
    return HEADING + FORWARD + LANE * lanes


def draw_architecture(ax: Axes, facts: Facts, lanes: Sequence[Lane], *, width: float) -> None:
    """Draw stem, blocks and head of a net with these taps, and the lanes, on so many inches."""
    height, narrow = architecture_height(len(lanes)), width < NARROW
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    ax.text(0, height, "Where each rule sends credit" if not narrow else "Credit", va="top")
    ax.text(width, height, "solid: exact   dashed: fixed random B", size=SMALL, color=GREY, ha="right", va="top")
    y = height - HEADING - 0.32
    left = max(text_width(lane.label, bold=True) for lane in lanes) + 0.12 if narrow else LABELS
    positions, error = _draw_forward(ax, shown_taps(len(facts.taps)), stem=facts.stem_tap, y=y, span=(left, width))
    for _, x in positions:
        ax.plot([x, x], [0.03, y - 0.12], color=FAINT, lw=0.5, ls=(0, (1, 2)), zorder=1)
    for i, lane in enumerate(lanes):
        _draw_lane(ax, lane, Track(positions, error, LANE * (len(lanes) - 0.5 - i), width))


def shown_taps(taps: int) -> list[int]:
    """Tap indices to draw: all, or the first and last three of a deep net.

    >>> shown_taps(5), shown_taps(21)
    ([0, 1, 2, 3, 4], [0, 1, 2, 18, 19, 20])
    """
    return list(range(taps)) if taps <= MOST_BLOCKS + 1 else [0, 1, 2, taps - 3, taps - 2, taps - 1]


def _draw_forward(
    ax: Axes, shown: list[int], *, stem: bool, y: float, span: tuple[float, float]
) -> tuple[tuple[tuple[int, float], ...], float]:
    """Boxes joined by arrows; gives each tap's place and that of the error."""
    names, after = [], []  # of each box, and the tap behind it: None behind the gap of a deep net
    for previous, tap in zip([-1, *shown], shown, strict=False):
        if tap > previous + 1:
            names, after = [*names, "⋯"], [*after, None]
        names, after = [*names, "stem" if stem and tap == 0 else f"block {tap}"], [*after, tap]
    left, right = span
    pitch = (right - left - 0.32) / (len(names) + 1)
    half = 0.38 * pitch
    if max(map(text_width, names)) > 2 * half:
        names = [name.removeprefix("block ") for name in names]
    middles = [left + 0.12 + pitch * (i + 0.5) for i in range(len(names) + 1)]
    error = middles[-1] + 0.5 * pitch + 0.1
    _draw_arrow(ax, (left + 0.02, y), (middles[0] - half, y), INK)
    ax.text(left, y, "x", ha="right", va="center", style="italic")
    for name, x, nearby in zip([*names, "head"], middles, [*middles[1:], error - 0.09 + half], strict=True):
        if name != "⋯":
            box = FancyBboxPatch((x - half, y - 0.12), 2 * half, 0.24, boxstyle="round,pad=0,rounding_size=0.04")
            box.set(facecolor="#f4f4f4", edgecolor=INK, linewidth=0.7, zorder=3)
            ax.add_patch(box)
        ax.text(x, y, name, ha="center", va="center", size=SMALL, zorder=4)
        _draw_arrow(ax, (x + half, y), (nearby - half, y), INK)
    ax.text(error, y, "e", ha="center", va="center", style="italic", weight="bold")
    ax.text(error, y + 0.13, "error", ha="center", va="bottom", size=SMALL)
    placed = tuple((tap, x + 0.5 * pitch) for tap, x in zip(after, middles, strict=False) if tap is not None)
    for tap, x in placed:
        ax.plot(x, y, "o", color=INK, ms=3.2, zorder=4)
        ax.text(x, y + 0.13, subscript("h", tap), ha="center", va="bottom")
    return placed, error


def _draw_lane(ax: Axes, lane: Lane, track: Track) -> None:
    """Tint, name, the rule's own route (else its formula) and words."""
    ax.add_patch(
        Rectangle((0, track.y - 0.46 * LANE), track.width, 0.92 * LANE, facecolor=lane.colour, alpha=0.07, lw=0)
    )
    narrow = track.width < NARROW
    middle = narrow and not isinstance(lane.facts, str)
    ax.text(
        0.06,
        track.y + 0.01 * (not narrow),
        lane.label,
        color=lane.colour,
        weight="bold",
        size=SMALL,
        va="center" if middle else "bottom",
    )
    if isinstance(lane.facts, str):
        words = lane.facts
    else:
        route, words = _ROUTES.get(lane.facts.rule.name, (_draw_formula, "by its own formula"))
        route(ax, lane.colour, track, lane.facts)
    if not narrow or isinstance(lane.facts, str):
        ax.text(0.06, track.y - 0.02, words, size=SMALL, color=INK, va="top")


def _draw_ends(ax: Axes, colour: str, track: Track, *, taps: float, error: float) -> None:
    """The tap dots and the error e, at their heights."""
    for _, x in track.taps:
        ax.plot(x, taps, "o", color=colour, ms=4, zorder=4)
    ax.text(track.error, error, "e", ha="center", va="center", style="italic", color=colour, weight="bold")


def _draw_chain(ax: Axes, colour: str, track: Track, facts: Facts) -> None:
    """From e to the last tap and on from tap to tap."""
    y = track.y - 0.05
    _draw_ends(ax, colour, track, taps=y, error=y)
    above = [(tap, x - DOT) for tap, x in track.taps[1:]] + [(track.taps[-1][0] + 1, track.error - 0.07)]
    for (tap, x), (next_tap, source) in zip(track.taps, above, strict=True):
        _draw_arrow(ax, (source, y), (x + DOT, y), colour, dashed=tap not in facts.exact_taps)
        symbol = subscript("g" if tap in facts.exact_taps else "B", tap) if next_tap == tap + 1 else "⋯"
        ax.text((source + x) / 2, y + 0.04, symbol, size=SMALL, ha="center", va="bottom", color=colour)


def _draw_direct(ax: Axes, colour: str, track: Track, facts: Facts) -> None:
    """A line from e over all taps, and from it one arrow down to each."""
    bus, y = track.y + 0.10, track.y - 0.11
    _draw_ends(ax, colour, track, taps=y, error=bus)
    reach = track.error - 0.07, track.taps[0][1]
    ax.plot(reach, (bus, bus), color=colour, lw=0.9, solid_capstyle="butt", zorder=3)
    for tap, x in track.taps:
        _draw_arrow(ax, (x, bus), (x, y + DOT), colour, dashed=True)
        ax.text(x + 0.05, track.y + 0.01, subscript("B", tap), size=SMALL, va="center", color=colour)


def set_indices(formula: str) -> str:
    """Lowered and raised as matplotlib sets them; a formula with a sign that it would read otherwise is left as it is.

    >>> set_indices("a_l = B_l a_{l+1}, (Âᵀ)^k")
    'a$_l$ = B$_l$ a$_{l+1}$, (Âᵀ)$^k$'
    """
    return formula if "$" in formula else re.sub(r"([_^](?:\w|\{[\w+\-−]+\}))", r"$\1$", formula)


def _draw_formula(ax: Axes, colour: str, track: Track, facts: Facts) -> None:
    middle = (track.taps[0][1] + track.error) / 2
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    ax.text(middle, track.y, set_indices(facts.rule.formula), ha="center", va="center", color=colour, bbox=ground)


def _draw_arrow(ax: Axes, start: tuple, end: tuple, colour: str, *, dashed: bool = False) -> None:
    look = {"arrowstyle": "->,head_length=1.8,head_width=1.3", "shrinkA": 0, "shrinkB": 0, "lw": 0.9, "zorder": 3}
    arrow = FancyArrowPatch(start, end, color=colour, **look)
    arrow.set_linestyle((0, (2.2, 1.4)) if dashed else "-")
    ax.add_patch(arrow)


_ROUTES: dict[str, tuple[Callable[[Axes, str, Track, Facts], None], str]] = {
    "bp": (_draw_chain, "exact, block by block"),
    "fa": (_draw_chain, "B in every layer"),
    "block_fa": (_draw_chain, "exact at the top, then B"),
    "dfa": (_draw_direct, "error straight to each tap"),
}
