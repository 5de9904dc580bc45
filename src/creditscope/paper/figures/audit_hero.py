"""The standard pair looks fine, the layers do not: accuracy and Γ beside cosine and gradient size per layer.

Figure F1. Every number, also those in the captions, comes from the last snapshots of the records; one
setting and one set of seeds serve all panels.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from creditscope.auditing.stats import NULL_SDS
from creditscope.paper.figures import _style, register_figure
from creditscope.paper.figures._architecture import Lane, architecture_height, draw_architecture
from creditscope.paper.figures._audit_hero_captions import (
    REFERENCE,
    caption_cosine,
    caption_gradient,
    caption_pair,
    chance_level,
    footer,
)
from creditscope.paper.figures._page import AXIS_ROOM, COLUMN, GAP, MARGIN, PANEL, add_axes, draw_footer, wrap_footer
from creditscope.paper.figures._selection import Group, Selection, select_runs
from creditscope.paper.figures._style import FAINT, GREY, INK, PAD, SMALL, WIDTH, line_height
from creditscope.paper.figures._words import number
from creditscope.plots._quantities import mean_sd
from creditscope.record import Record
from creditscope.text import subscript

RULE_LABEL = "rule label"
"""Marks the names that are written beside the points of panel A."""


@register_figure("audit_hero")
def plot_audit_hero(records: Sequence[Record], *, rules: Sequence[str] = ("bp", "block_fa", "dfa")) -> Figure:
    """Draw the figure from trained, unpenalised records of `rules` on one task and net.

    BP comes first. A rule without records is a marked gap; seeds that not all rules have are left out and said.
    """
    hero = select_runs(records, rules=sorted(rules, key=lambda rule: rule != REFERENCE))
    with _style.styled():
        return _compose(hero)


def draw_pair(ax: Axes, hero: Selection) -> None:
    """A: Γ against accuracy, mean ± sd over seeds, with the seeds as dots."""
    _draw_quadrants(ax, hero)
    points, dots = [], []
    for group in hero.drawn:
        gamma, accuracy, look = group.per_run("gamma"), group.per_run("accuracy"), group.style
        dots += zip(gamma, accuracy, strict=True)
        (x, dx), (y, dy) = mean_sd(gamma), mean_sd(accuracy)
        ax.errorbar(x, y, dy, dx, fmt="none", ecolor=look.colour, elinewidth=0.8, capsize=1.5, zorder=3)
        ax.plot(gamma, accuracy, "o", color=look.colour, ms=2.6, mew=0, zorder=4, gid=f"{group.rule} seeds")
        point = {"mec": "white", "mew": 0.5, "ms": 72 * _style.MARK, "zorder": 5}
        ax.plot(x, y, look.marker, color=look.colour, gid=f"{group.rule} mean", **point)
        points += [] if np.isnan([x, y]).any() else [(look, float(x), float(y))]
    _style.label_points(ax, points, dots, gid=RULE_LABEL)
    ax.set(xlabel="Γ, mean cosine over blocks", ylabel="test accuracy")


def _draw_quadrants(ax: Axes, hero: Selection) -> None:
    """Limits from the data with room for the four quadrants, then their tints and names."""
    gammas = np.concatenate([[0.0], *(g.per_run("gamma") for g in hero.drawn)])
    chance = chance_level(hero)
    level = 0.0 if chance is None else chance
    accuracies = np.concatenate([[level], *(g.per_run("accuracy") for g in hero.drawn)])
    low, high = np.nanmin(accuracies), np.nanmax(accuracies)
    room = max(high - low, 0.05)
    bottom, top = low - (0.24 if low < level else 0.2) * room, high + 0.3 * room  # no point lies on the lowest words
    bottom = 0.0 if 0 < bottom < 0.1 * room else bottom  # so near to 0 the axis starts there
    left, right = min(-0.42, np.nanmin(gammas) - 0.15), max(1.2, np.nanmax(gammas) + 0.2)
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=np.arange(np.ceil(left * 2), right * 2) / 2)
    lowest, highest = max(bottom, 0), min(top, 1)
    ticks = MaxNLocator(6).tick_values(lowest, highest)
    ax.set_yticks([tick for tick in ticks if lowest <= tick <= highest])  # one beyond would widen the axis
    if chance is None:
        return
    ax.axhline(chance, color=FAINT, lw=0.6, zorder=1, gid="chance")
    ax.axvline(0, color=FAINT, lw=0.6, zorder=1)
    raised, lowered = top - 0.03 * (top - bottom), bottom + 0.1 * room
    for x, y, w, h, tint in (
        (0, chance, right, top - chance, "#e3f2e1"),
        (left, bottom, -left, chance - bottom, "#f9e0de"),
        (left, chance, -left, top - chance, "#f1f1f1"),
        (0, bottom, right, chance - bottom, "#f1f1f1"),
    ):
        ax.add_patch(Rectangle((x, y), w, h, facecolor=tint, lw=0, zorder=0))
    for x, y, text, colour, ha, va in (
        (right - 0.03, raised, "looks like learning", "#2f7d32", "right", "top"),
        (left + 0.03, lowered, "neither", "#a8322a", "left", "center"),
        (left / 2, raised, "accuracy\nonly", GREY, "center", "top"),
        (0.05, lowered, "Γ only", GREY, "left", "center"),
        (right - 0.03, lowered, f"at chance below {number(chance)}", GREY, "right", "center"),
    ):
        ax.text(x, y, text, color=colour, size=SMALL, ha=ha, va=va, zorder=1)


def draw_cosine(ax: Axes, hero: Selection) -> None:
    """B: cos(a_l, g_l) per tap, the stem apart, over the null band; hollow where credit is exact."""
    stem = hero.facts.stem_tap
    x = np.array([-0.5 if stem and tap == 0 else tap for tap in range(len(hero.facts.taps))], dtype=float)
    band = null_band(hero)
    ax.bar(x, 2 * band, bottom=-band, width=1.0, color=_style.BAND, lw=0, zorder=0)
    ax.axhline(0, color=INK, lw=0.7, ls=":", zorder=1)
    if stem:
        ax.axvline(0.25, color=FAINT, lw=0.5, zorder=1)
    lowest, highest = -0.25, 1.12
    for shift, group in _dodged(hero):
        mean, sd = mean_sd(group.per_tap("cos"))
        hollow = group.facts.exact_taps
        _draw_series(ax, x + shift, mean, (sd, sd), group, joined=hero.facts.gamma_taps, hollow=hollow)
        lowest, highest = np.nanmin([lowest, *(mean - 0.08)]), np.nanmax([highest, *(mean + 0.08)])
    ax.set(ylim=(lowest, highest), ylabel="cos(aₗ, gₗ)", yticks=[0, 0.25, 0.5, 0.75, 1])
    _draw_tap_axis(ax, hero, x)


def null_band(hero: Selection) -> np.ndarray:
    """Half width of the null band per tap: 1.96 × the mean null sd over seeds and rules inexact there."""
    sds = []
    for group in hero.drawn:
        sds.append(group.per_tap("null_sd"))
        sds[-1][:, list(group.facts.exact_taps)] = np.nan
    return NULL_SDS * mean_sd(np.concatenate(sds))[0]


def draw_gradient(ax: Axes, hero: Selection) -> None:
    """C: median ‖g_l‖ per sample, 10^(mean ± sd of log10 over seeds)."""
    x = np.arange(len(hero.facts.taps), dtype=float)
    ax.set_yscale("log")
    logs = np.concatenate([g.log_gradient().ravel() for g in hero.drawn])
    if not np.isnan(logs).all():  # before drawing: equal values have no limits of their own
        ax.set_ylim(10 ** np.floor(np.nanmin(logs) - 0.1), 10 ** np.ceil(np.nanmax(logs) + 0.1))
    for shift, group in _dodged(hero):
        mean, sd = mean_sd(group.log_gradient())
        y = 10**mean
        bars = y - 10 ** (mean - sd), 10 ** (mean + sd) - y
        _draw_series(ax, x + shift, y, bars, group, joined=range(len(x)))
    ax.set_ylabel("‖gₗ‖ per sample, median")
    _draw_tap_axis(ax, hero, x)


def _dodged(hero: Selection) -> list[tuple[float, Group]]:
    """A small sideways shift per rule, so that bars and equal values stay visible."""
    middle = (len(hero.groups) - 1) / 2
    return [(0.54 / len(hero.groups) * (i - middle), group) for i, group in enumerate(hero.groups) if group.records]


def _draw_series(
    ax: Axes,
    x: np.ndarray,
    y: np.ndarray,
    bars: tuple[np.ndarray, np.ndarray],
    group: Group,
    *,
    joined: Sequence[int],
    hollow: Sequence[int] = (),
) -> None:
    """Bars and markers at every tap, a line through the `joined` ones, white markers at the `hollow` ones."""
    look, filled = group.style, [tap for tap in range(len(x)) if tap not in hollow]
    ax.plot(x[list(joined)], y[list(joined)], color=look.colour, lw=1.1, zorder=2, gid=f"{group.rule} line")
    size, cap = (4.5, 1.5) if len(x) <= 10 else (2.8, 0)
    ax.errorbar(x, y, bars, fmt="none", ecolor=look.colour, elinewidth=0.8, capsize=cap, zorder=3)
    for name, taps, face in (("filled", filled, look.colour), ("hollow", list(hollow), "white")):
        look_of = {"color": look.colour, "mfc": face, "ms": size}
        ax.plot(x[taps], y[taps], look.marker, zorder=4, gid=f"{group.rule} {name}", **look_of)


def _draw_tap_axis(ax: Axes, hero: Selection, x: np.ndarray) -> None:
    every = 1 + (len(x) - 1) // 12
    ax.set_xticks(x[::every], [subscript("h", tap) for tap in range(0, len(x), every)])
    ax.set_xlim(x[0] - 0.5, x[-1] + 0.5)
    ax.set_xlabel("tap (h₀: stem)" if hero.facts.stem_tap else "tap")


def _rule_keys(hero: Selection, *, gaps_only: bool) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = []
    for group in hero.groups:
        look = {"color": group.style.colour, "ms": 4.0}
        if group.gap:
            keys.append(Line2D([], [], ls="", marker="x", label=f"{group.style.label}:\n{group.gap}", **look))
        elif not gaps_only:
            keys.append(Line2D([], [], marker=group.style.marker, lw=1.1, label=group.style.label, **look))
    return keys


def _note_keys(hero: Selection, panel: str) -> list[Line2D | Patch]:
    """What is not a rule: bars, dots, band, hollow markers; only what is in the panel."""
    n = len(hero.seeds)
    if panel == "B":
        keys: list[Line2D | Patch] = []
        if not np.isnan(null_band(hero)).all():
            keys.append(Patch(color=_style.BAND, label="random orientation of\none run, 95 % band"))
        if any(group.facts.exact_taps for group in hero.drawn):
            keys.append(_grey_key("hollow: exact credit", marker="o", ls="", mfc="white"))
        return keys
    of = " of log10" if panel == "C" else ""
    bars = _grey_key(f"mean ± sd{of}\nover {n} seeds" if n > 1 else "one seed", marker="|" if of else "o", lw=0.8)
    return [bars] if panel == "C" or n == 1 else [bars, _grey_key("each seed", marker="o", ls="", ms=2.6)]


def _grey_key(label: str, **look: Any) -> Line2D:
    return Line2D([], [], color=GREY, label=label, **{"ms": 4.0, **look})


_PANELS: tuple[tuple[str, str, Callable[[Axes, Selection], None], Callable[[Selection], str]], ...] = (
    ("A", "The standard reporting pair", draw_pair, caption_pair),
    ("B", "Credit against gradient, per tap", draw_cosine, caption_cosine),
    ("C", "The reference gradient, per tap", draw_gradient, caption_gradient),
)


def _compose(hero: Selection) -> Figure:
    """Stack drawing, panels, keys, captions and footer; the page is as high as they need (inches)."""
    captions = [_style.wrap_text(say(hero), width=COLUMN - 2 * PAD, italic=True) for *_, say in _PANELS]
    foot = wrap_footer([footer(hero), " ".join(hero.notes)])
    keys = [_rule_keys(hero, gaps_only=False), *(_note_keys(hero, letter) for letter, *_ in _PANELS)]
    box = max(map(len, captions)) * line_height() + 2 * PAD
    box_bottom = len(foot) * line_height() + 0.1
    key_top = box_bottom + box + 0.1 + max(map(_style.key_height, keys))
    bottom, drawing = key_top + 0.36, architecture_height(len(hero.groups))
    height = bottom + PANEL + 0.34 + drawing + MARGIN
    fig = Figure(figsize=(WIDTH, height))
    _add_architecture(fig, hero, bottom=height - MARGIN - drawing, height=drawing)
    for i, ((letter, title, draw, _), lines) in enumerate(zip(_PANELS, captions, strict=True)):
        edge = MARGIN + i * (COLUMN + GAP)
        ax = add_axes(fig, edge + AXIS_ROOM, bottom, COLUMN - AXIS_ROOM, PANEL, label=letter)
        draw(ax, hero)
        heading = f"{letter}   {title}"
        fig.text(edge, bottom + PANEL + 0.1, heading, transform=fig.dpi_scale_trans, weight="bold", va="bottom")
        labelled = any(text.get_gid() == RULE_LABEL for text in ax.texts)
        _style.draw_key(ax, _rule_keys(hero, gaps_only=labelled), x=edge + 0.12, y=key_top, loc="upper left")
        _style.draw_key(ax, _note_keys(hero, letter), x=edge + COLUMN, y=key_top, loc="upper right")
        _style.draw_caption(fig, lines, x=edge, y=box_bottom, width=COLUMN, height=box)
    draw_footer(fig, foot, top=box_bottom - 0.06)
    return fig


def _add_architecture(fig: Figure, hero: Selection, *, bottom: float, height: float) -> None:
    """One lane per rule, gaps too: the drawing shows the rule, not its runs."""
    last, lanes = len(hero.facts.taps) - 1, []
    for group in hero.groups:
        exact_top = last in group.facts.exact_taps if group.records else group.rule == "block_fa"
        formula = group.facts.rule.formula if group.records else group.gap
        lanes.append(Lane(group.rule, group.style.label, group.style.colour, exact_top, formula))
    ax = add_axes(fig, MARGIN, bottom, WIDTH - 2 * MARGIN, height, label="architecture")
    draw_architecture(ax, taps=last + 1, stem=hero.facts.stem_tap, lanes=lanes, width=WIDTH - 2 * MARGIN)
