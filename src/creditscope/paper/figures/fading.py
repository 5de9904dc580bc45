"""Accuracy and what every tap is told, from epoch to epoch: a film; on paper its last moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from creditscope.auditing import audit
from creditscope.auditing.stats import NULL_SDS
from creditscope.auditing.strip import short_number
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import (
    PAGE,
    Page,
    Panel,
    draw_page,
    grey_key,
    line_keys,
    say_missing,
    say_setting,
)
from creditscope.paper.figures.audit_hero import name_taps
from creditscope.paper.studies.fading import RULES
from creditscope.plots import Caption, Statement
from creditscope.plots._film import Film
from creditscope.plots._lines import Line, lines_of
from creditscope.plots._panel import draw_series, label_ends, last_known
from creditscope.plots._quantities import mean_and_half, title
from creditscope.plots._style import BAND, BODY, FAINT, GREY, INK
from creditscope.record import Record
from creditscope.record.pick import Cell, Picked, pick
from creditscope.text import count, subscript

SUBJECT = "dfa"
"""Whose taps the titles are about; the other is there to compare."""
TITLE = "Accuracy from epoch to epoch, and what every tap is told then."
READING = (
    "A: thick lines are means over seeds, thin ones seeds. B: mean cosine and 95 % t interval over seeds, on the band "
    "of a random orientation of one run (of DFA, where it is drawn). As a film (--format gif) every epoch that all "
    "runs were measured at in turn."
)
DODGE = 0.09


@dataclass(frozen=True)
class Course:
    """One rule over the epochs that are shown."""

    cell: Cell
    line: Line
    epochs: np.ndarray

    def read(self, quantity: str) -> np.ndarray:
        """(seeds, epochs) or (seeds, epochs, taps)."""
        known, values = self.cell.course(quantity)
        return values[:, np.isin(known, self.epochs)]

    @cached_property
    def accuracy(self) -> np.ndarray:
        return self.read("accuracy")

    @cached_property
    def cos(self) -> np.ndarray:
        return self.read("cos")

    @cached_property
    def band(self) -> np.ndarray:
        """Half the width of what chance gives one run, (epochs, taps)."""
        return NULL_SDS * self.read("null_sd").mean(axis=0)

    @cached_property
    def inside(self) -> np.ndarray:
        """Whether the mean over seeds is what chance gives one run, (epochs, taps); of trained nets alone."""
        return (np.abs(self.cos.mean(axis=0)) <= self.band)[self.epochs > 0]


def select(records: Sequence[Record]) -> tuple[Picked, dict[str, Course]]:
    """Plain runs of the rules on the seeds they share, at the epochs that all were measured at."""
    plain = [r for r in records if r.spec and not r.facts.rule.variant]
    where = {"rule": RULES, "penalty": 0.0, "credit_norm": "none", "targets": "true"}
    found = pick(plain, vary={"rule": "rule"}, where=where).shared()
    known = [set(cell.course("accuracy")[0].tolist()) for cell in found.drawn]
    epochs = np.array(sorted(set.intersection(*known)))
    lines = {line.facts.rule.name: line for line in lines_of(found.records)}
    return found, {cell.key[0]: Course(cell, lines[cell.key[0]], epochs) for cell in found.drawn}


def film(records: Sequence[Record], *, page: Page = PAGE) -> Film:
    """The page with its last moment drawn, and how to show the others on it."""
    _, courses = select(records)
    epochs, drawn, axes = next(iter(courses.values())).epochs, list[Artist](), dict[str, Axes]()

    def draw(name: str, ax: Axes) -> None:
        axes[name] = ax
        (_frame_accuracy if name == "accuracy" else _frame_taps)(ax, list(courses.values()), labels=not page.narrow)

    def show(moment: int) -> None:
        while drawn:
            drawn.pop().remove()
        before = {artist for ax in axes.values() for artist in ax.get_children()}
        for name, ax in axes.items():
            (_show_accuracy if name == "accuracy" else _show_taps)(ax, list(courses.values()), moment)
        drawn.extend(a for ax in axes.values() for a in ax.get_children() if a not in before)

    def keys(shown: set[str]) -> list[Artist]:
        looks = [course.line.look for course in courses.values()]
        band = Patch(color=BAND, label="random orientation of one run, 95 %")
        chance = [grey_key("chance", ls=":")] if "chance" in shown else []
        return [*line_keys(looks, page), band, *chance]

    titles = find_titles(courses)
    panels = [Panel(text, partial(draw, name), height=1.75) for name, text in titles.items()]
    made = Film(draw_page(page, panels, keys=keys), len(epochs), show)
    show(len(epochs) - 1)
    return made


@register_figure("fading")
def plot_fading(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """The last moment of the film, of the plain runs of FA and DFA; what is missing is a marked gap."""
    return film(records, page=page).figure


def find_titles(courses: dict[str, Course]) -> dict[str, str]:
    """By panel, what it shows of the subject, where there are runs of it."""
    plain = {"accuracy": "Accuracy over training", "taps": "Credit against gradient, per tap"}
    own = courses.get(SUBJECT)
    if own is None or (own.epochs > 0).sum() < 2:
        return plain
    name, trained = own.line.look.label, own.epochs > 0
    first, last = own.accuracy.mean(axis=0)[trained][[0, -1]]
    said = f"{name}: accuracy {short_number(first, '.2f')} after {count(int(own.epochs[trained][0]), 'epoch')}, "
    plain["accuracy"] = f"{said}{short_number(last, '.2f')} after {own.epochs[-1]}"
    asked = list(own.line.facts.gamma_taps)
    always = [tap for tap in asked if own.inside[:, tap].all()]
    at_last = [tap for tap in asked if own.inside[-1, tap]]
    if always:
        plain["taps"] = f"{name}: {name_taps(always)} never leave one run's band"
    elif at_last:
        plain["taps"] = f"{name}: {name_taps(at_last)} end in one run's band"
    return plain


def describe(records: Sequence[Record]) -> Caption:
    """Accuracy at both ends, and of every tap its last cosine, CS005's answer, and how long it was within the band."""
    found, courses = select(records)
    said = []
    for course in courses.values():
        facts, name, trained = course.line.facts, course.line.look.label, course.epochs > 0
        over = partial(Statement.over, group=name)
        for epoch, values in zip(course.epochs[trained], course.accuracy.T[trained], strict=True):
            if epoch in course.epochs[trained][[0, -1]]:
                said.append(over(f"accuracy after {count(int(epoch), 'epoch')}", values=values, panel="A"))
        (judged,) = audit(course.cell.records).methods
        for tap, cos in enumerate(course.cos[:, -1].T):
            answer = "exact" if tap in facts.exact_taps else judged.per_tap[tap].answer or ""
            said.append(over(f"cosine at {subscript('h', tap)}", values=cos, verdict=answer, panel="B"))
        for tap, inside in enumerate(course.inside.T):
            share = f"{inside.sum()} of {count(len(inside), 'epoch')}"
            said.append(Statement(f"{subscript('h', tap)} within the band", name, share, panel="B"))
    setting = f"{say_setting(found)}; cosine on {found.first.last.rows:,} test rows"
    return Caption(TITLE, READING, setting, tuple(sorted(said, key=lambda s: s.panel)), found.gaps)


def _frame_accuracy(ax: Axes, courses: Sequence[Course], *, labels: bool) -> None:
    """What does not move: range, names, chance."""
    facts, epochs = courses[0].line.facts, courses[0].epochs
    top = max(float(np.nanmax(course.accuracy)) for course in courses)
    ax.set(xlim=(-0.02 * epochs[-1], 1.02 * epochs[-1]), ylim=(0, 1.25 * top), xlabel="epoch", ylabel="accuracy")
    if facts.chance is not None:
        ax.axhline(facts.chance, color=GREY, lw=0.8, ls=":", zorder=1, gid="chance")
    _fix_ticks(ax)
    label_ends(ax, [(c.line.look, float(c.accuracy[:, -1].mean())) for c in courses] if labels else [])


def _frame_taps(ax: Axes, courses: Sequence[Course], *, labels: bool) -> None:
    facts = courses[0].line.facts
    means = np.concatenate([course.cos.mean(axis=0) for course in courses])
    ax.set(xlim=(-0.5, len(facts.taps) - 0.5), ylim=(min(-0.12, np.nanmin(means) - 0.05), np.nanmax(means) + 0.08))
    ax.set_xticks(range(len(facts.taps)), [subscript("h", tap) for tap in range(len(facts.taps))])
    ax.set(xlabel="tap (h₀: stem)" if facts.stem_tap else "tap", ylabel=title("cos"))
    _fix_ticks(ax)
    ax.axhline(0, color=INK, lw=0.7, ls=":", zorder=1)
    if facts.stem_tap:
        ax.axvline(0.5, color=FAINT, lw=0.5, zorder=1)
    if not any(np.isfinite(course.cos).any() for course in courses):
        say_missing(ax, "not measured")
    ends = [(course.line.look, last_known(course.cos[:, -1].mean(axis=0))) for course in courses]
    label_ends(ax, ends if labels else [])


def _fix_ticks(ax: Axes) -> None:
    """So that the room of their labels is known before the page is laid out."""
    low, high = ax.get_ylim()
    ax.set_yticks([tick for tick in MaxNLocator(5).tick_values(low, high) if low <= tick <= high])


def _show_accuracy(ax: Axes, courses: Sequence[Course], moment: int) -> None:
    """The way up to a moment, and its epoch."""
    epochs = courses[0].epochs[: moment + 1]
    for course in courses:
        look, values = course.line.look, course.accuracy[:, : moment + 1]
        ax.plot(epochs, values.T, color=look.colour, lw=0.5, alpha=0.35, zorder=2, gid=f"{look.label} seed")
        mean = values.mean(axis=0)
        ax.plot(epochs, mean, color=look.colour, lw=1.5, zorder=3, gid=f"{look.label} mean")
        now = {"color": look.colour, "marker": look.marker, "ms": 5, "clip_on": False}
        ax.plot(epochs[-1:], mean[-1:], zorder=4, gid=f"{look.label} now", **now)
    how = {"transform": ax.transAxes, "ha": "right", "va": "top", "size": BODY, "weight": "bold", "color": INK}
    ax.text(0.98, 0.99, f"epoch {epochs[-1]}", gid="epoch", **how)


def _show_taps(ax: Axes, courses: Sequence[Course], moment: int) -> None:
    band = next((course for course in courses if course.cell.key[0] == SUBJECT), courses[0]).band[moment]
    ax.bar(range(len(band)), 2 * band, bottom=-band, width=1.0, color=BAND, lw=0, zorder=0, gid="null")
    for i, course in enumerate(courses):
        facts, (mean, half) = course.line.facts, mean_and_half(course.cos[:, moment].T)
        x = np.arange(len(mean)) + DODGE * (2 * i - len(courses) + 1)
        draw_series(ax, course.line, x, mean, (half, half), joined=facts.gamma_taps, hollow=facts.exact_taps)
