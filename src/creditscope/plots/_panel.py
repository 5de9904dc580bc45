"""What panels share: their axes, a series of marks, names beside points and lines, and a note, placed at layout."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, NullFormatter

from creditscope.plots._lines import Line, name_room
from creditscope.plots._style import BODY, GREY, INK, MARK, SMALL, line_height, styled, text_width, wrap_text
from creditscope.rule_styles import Look
from creditscope.text import power

SIZE = (2.9, 2.4)
"""Of a panel that is a figure of its own, without names beside it; inches."""
MANY = 10
"""Taps beyond which markers are small and bars pale."""
ENDS, NOTES, HEADS, POINTS = range(4)
"""In which order things are placed: each needs the page with those before."""
_waiting: dict[Figure, dict[int, list[Callable[[], Any]]]] = {}


@contextmanager
def panel(ax: Axes | None, lines: Sequence[Line], *, labels: bool = True) -> Iterator[Axes]:
    """The axes to draw on, in our style, or those of a new figure with room for names."""
    room, rows = (name_room(lines), len(lines)) if labels else (0.0, 0)
    with new_axes(ax, (SIZE[0] + room, max(SIZE[1], 0.9 + line_height() * rows))) as chosen:
        yield chosen


@contextmanager
def new_axes(ax: Axes | None, size: tuple[float, float]) -> Iterator[Axes]:
    """Those given, in our style, or those of a new figure of this size (inches), laid out at the end."""
    with styled():
        if ax is not None:
            yield ax
            return
        fig = Figure(figsize=size, layout="constrained")
        yield fig.add_subplot()
        fig.draw_without_rendering()


class Powers(LogFormatterSciNotation):
    """Powers of ten in plain Unicode: raised by mathematics they would be smaller than the smallest font."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return power(x) if super().__call__(x, pos) else ""


def set_log(ax: Axes, axis: Literal["x", "y"] = "y", *, minor: bool = True) -> None:
    """A log axis; without `minor` it has ticks at powers of ten alone."""
    (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
    own = ax.xaxis if axis == "x" else ax.yaxis
    own.set_major_formatter(Powers())
    own.set_minor_formatter(Powers() if minor else NullFormatter())


def draw_series(
    ax: Axes,
    line: Line,
    x: np.ndarray,
    y: np.ndarray,
    bars: Sequence[np.ndarray],
    *,
    joined: Sequence[int],
    hollow: Sequence[int] = (),
) -> None:
    """Bars and markers at every tap, a line through the `joined` ones, white markers at the `hollow` ones."""
    look, name = line.look, line.look.label
    ax.plot(x[list(joined)], y[list(joined)], color=look.colour, ls=line.dashes, lw=1.1, zorder=2, gid=f"{name} line")
    size, cap, alpha = (4.5, 1.5, 1.0) if len(x) <= MANY else (2.8, 0, 0.35)
    thin = {"fmt": "none", "ecolor": look.colour, "elinewidth": 0.8, "capsize": cap, "alpha": alpha}
    ax.errorbar(x, y, np.nan_to_num(bars), zorder=3, **thin)
    filled = [tap for tap in range(len(x)) if tap not in hollow]
    for kind, taps, face in (("filled", filled, look.colour), ("hollow", list(hollow), "white")):
        style = {"color": look.colour, "mfc": face, "ms": size, "ls": ""}
        ax.plot(x[taps], y[taps], marker=look.marker, zorder=4, gid=f"{name} {kind}", **style)


def last_known(y: np.ndarray) -> float:
    """Where a line ends, which has its name beside it; NaN if it has no point."""
    known = y[~np.isnan(y)]
    return float(known[-1]) if len(known) else np.nan


@contextmanager
def laid_out_once(fig: Figure, *, notes: bool = True) -> Iterator[None]:
    """Lay the page out once for all panels that are drawn meanwhile, not for each; at the end nothing moves any more.

    Without `notes` what panels say of their marks is left out: a page with a caption says it there.
    """
    steps = _waiting[fig] = {}
    try:
        yield
    finally:
        del _waiting[fig]
    for step in sorted(step for step in steps if notes or step != NOTES):
        fig.draw_without_rendering()
        for place in steps[step]:
            place()
    fig.draw_without_rendering()


def when_laid_out(ax: Axes, step: int, place: Callable[[], Any]) -> None:
    """Lay the figure out, so that places on it can be measured, and do it; or do it with the rest of the page."""
    fig: Figure = ax.figure.figure  # pyright: ignore[reportAssignmentType]
    if fig in _waiting:
        _waiting[fig].setdefault(step, []).append(place)
    else:
        fig.draw_without_rendering()
        place()


def write_note(ax: Axes, *parts: str) -> None:
    """Small grey lines above the axes, as wide as they are: what the marks are."""
    said, look = "; ".join(part for part in parts if part), {"size": SMALL, "color": GREY, "linespacing": 1.2}

    def place() -> None:
        width = ax.get_window_extent().width / ax.figure.dpi
        ax.set_title("\n".join(wrap_text(said, width=width)), loc="left", pad=4, **look)

    when_laid_out(ax, NOTES, place)


def label_ends(ax: Axes, ends: Sequence[tuple[Look, float]]) -> None:
    """Write each label right of the axes where its line ends, apart from others and not above the axes."""
    ends = sorted((end for end in ends if np.isfinite(end[1])), key=lambda end: end[1])

    def place() -> None:
        heights = [ax.transData.transform((0, y))[1] * 72 / ax.figure.dpi for _, y in ends]
        gap = 72 * line_height()
        highest = 72 * ax.bbox.y1 / ax.figure.dpi - gap / 2
        places = spread(heights, gap)
        for i in reversed(range(len(places))):  # what stands above the axes is moved down onto them
            places[i], highest = min(places[i], highest), min(places[i], highest) - gap
        for (look, y), at, moved in zip(ends, heights, places, strict=True):
            line = {"arrowstyle": "-", "color": look.colour, "lw": 0.5, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
            how = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False}
            how |= {"color": look.colour, "size": SMALL, "va": "center", "arrowprops": line}
            ax.annotate(look.label, (1, y), (7, moved - at), **how)

    if ends:
        when_laid_out(ax, ENDS, place)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Rising heights moved as little as keeps them `gap` apart: where they crowd, evenly around their mean.

    >>> spread([0, 1, 20], 4)
    [-1.5, 2.5, 20.0]
    """
    groups: list[list[float]] = []  # of heights less the gaps below them, which may be equal but may not fall
    for i, height in enumerate(heights):
        groups.append([height - i * gap])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    flat = [float(np.mean(group)) for group in groups for _ in group]
    return [height + i * gap for i, height in enumerate(flat)]


def find_places(
    ax: Axes, points: Sequence[tuple[Look, float, float]], dots: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Where each point's bold label may begin and has its middle (inches of the page); empty if one would touch.

    So it is where two points lie on one another, and labels around them would name neither. Limits and other texts come
    first; `dots` are small marks that a label may be near but not on.
    """
    inch = ax.figure.dpi
    places = [ax.transData.transform((x, y)) / inch for _, x, y in points]
    if any(np.hypot(*(one - other)) < MARK for one, other in combinations(places, 2)):
        return []
    spots = [ax.transData.transform(dot) / inch for dot in dots]
    boxes = [text.get_window_extent() for text in ax.texts]
    taken = [(box.x0 / inch, (box.y0 + box.y1) / 2 / inch, box.width / inch) for box in boxes]
    chosen = []
    for (look, _, _), (x, y) in zip(points, places, strict=True):
        width = text_width(look.label, size=BODY, bold=True)
        lefts, middles = (x + 0.09, x - width - 0.09, x - width / 2), (y, y + 0.14, y - 0.14)
        sides = [(left, middle) for middle in middles for left in lefts if (left, middle) != (lefts[2], y)]
        others = [place for place in places if tuple(place) != (x, y)]
        clashes = [_count_clashes(ax, (*side, width), others, taken, spots) for side in sides]
        if min(clashes):
            return []
        chosen.append(sides[int(np.argmin(clashes))])
        taken.append((*chosen[-1], width))
    return chosen


FURTHER = (0.24, -0.24, 0.38, -0.38, 0.5, -0.5, 0.65, -0.65)
"""How far up from beside its point a label may stand to which a line leads, inches."""
HIDDEN, PASSED = 0.06, 0.04
"""Nearer than so to a point a mark lies under it, and nearer than so to a line the line passes over it; inches."""


def label_some(ax: Axes, points: Sequence[tuple[str, float, float]], *, led: int = 0) -> None:
    """Write small labels beside those points that have room for one, the first first, nearer to them than to others.

    The first `led` may stand further off, where a line leads to them.
    """
    inch = ax.figure.dpi
    places = [tuple(ax.transData.transform((x, y)) / inch) for _, x, y in points]
    low, high = ax.bbox.y0 / inch + 0.06, ax.bbox.y1 / inch - 0.04
    taken: list[tuple[float, float, float]] = []
    for i, ((label, x, y), place) in enumerate(zip(points, places, strict=True)):
        width, others = text_width(label), [other for other in places if other != place]
        beside = [(place[0] + 0.08, place[1]), (place[0] - width - 0.08, place[1])]
        beside += [(place[0] - width / 2, place[1] + up) for up in (0.13, -0.13)]
        off = [(left, middle + up) for up in FURTHER for left, middle in beside[:2]]
        for left, middle in (*beside, *off[: len(off) * (i < led)]):
            near = [np.hypot(x - np.clip(x, left, left + width), y - middle) for x, y in others]
            far = (left, middle) in off
            if not low < middle < high or (not far and min(near, default=1.0) < 0.17):
                continue
            if far and any(_is_on(other, place, (left + width / 2, middle)) for other in others):
                continue
            if _count_clashes(ax, (left, middle, width), others, taken, ()):
                continue
            line = {"arrowstyle": "-", "color": GREY, "lw": 0.5, "shrinkA": 0, "shrinkB": 2, "relpos": (0.5, 0.5)}
            how = {"size": SMALL, "color": INK, "va": "center", "zorder": 6, "gid": "label"}
            how["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.3, "alpha": 0.75}
            offset = 72 * (np.array((left, middle)) - place)
            how |= {"arrowprops": line} if far else {}
            ax.annotate(label, (x, y), tuple(offset), textcoords="offset points", annotation_clip=False, **how)
            taken.append((left, middle, width))
            break


def _is_on(point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]) -> bool:
    """Whether a line from start to end passes over the mark at a point that does not lie under its start."""
    (x, y), (right, up) = np.subtract(point, start), np.subtract(end, start)
    length, passed = np.hypot(right, up), x * right + y * up
    return np.hypot(x, y) > HIDDEN and 0 < passed < length**2 and abs(x * up - y * right) < PASSED * length


def label_points(ax: Axes, points: Sequence[tuple[Look, float, float]], dots: Sequence[tuple[float, float]]) -> bool:
    """Write each label beside its point, and stay there when the axes move; whether there was room for all."""
    places = find_places(ax, points, dots)
    for (look, x, y), place in zip(points, places, strict=bool(places)):
        away = 72 * (np.array(place) - ax.transData.transform((x, y)) / ax.figure.dpi)
        how = {"color": look.colour, "size": BODY, "weight": "bold", "va": "center", "zorder": 6}
        ax.annotate(look.label, (x, y), tuple(away), textcoords="offset points", annotation_clip=False, **how)
    return bool(places)


def _count_clashes(ax: Axes, box: tuple[float, float, float], points: Sequence, taken: Sequence, dots: Sequence) -> int:
    """How many points, labels, dots and borders a label (left, middle, width; inches) would touch."""
    (left, middle, width), height = box, 0.13
    frame = ax.bbox.x0 / ax.figure.dpi + 0.03, ax.bbox.x1 / ax.figure.dpi - 0.03
    count = 10 * (left < frame[0] or left + width > frame[1])
    count += sum(left - 0.06 < x < left + width + 0.06 and abs(y - middle) < height for x, y in points)
    count += sum(left < x < left + width and abs(y - middle) < 0.06 for x, y in dots)
    return count + sum(left < x + w and x < left + width and abs(y - middle) < height for x, y, w in taken)
