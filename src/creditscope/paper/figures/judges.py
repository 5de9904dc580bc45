"""Which number ranks rules as their end does: of each early measure its rank correlation with the final share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import combinations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.auditing.stats import CONFIDENCE, Interval, known_mean
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key
from creditscope.paper.figures._league import Board, find_boards, letters
from creditscope.paper.standings import deep_cosine, growth, mean_over_taps
from creditscope.plots import Caption, Statement
from creditscope.plots._style import BAND, GREY, INK
from creditscope.record import Facts, Record, Snapshot
from creditscope.record.table import read
from creditscope.text import count, number

ACCURACY = "accuracy"
"""A yardstick: at the end it is the share itself, and it is of no pair."""
PAIR, ELSEWHERE = "best pair", "pair chosen elsewhere"
Measure = Callable[[Facts, Snapshot], float | None]
EPOCHS = (0, 1, 4, -1)
"""−1: the end."""
GREYS = {0: "white", 1: "#c8c8c8", 4: "#808080", -1: "#111111"}
DRAWS = 2000
FEWEST = 10
"""Rows under which a rank correlation is not drawn."""
ALIKE = 1e-6
"""Values that differ by no more of their size are equal: nets before training."""
TITLE = "Which early number ranks rules as the share of BP's gain that they end with does."
READING = (
    "Spearman's rank correlation, over rows (a rule with its options and λ) without BP, of a measure's mean over "
    "seeds with the final share (rows that lack the measure are left out), at epochs 0, 1, 4 and at the end; bars are"
    " 95 % bootstrap intervals, rules drawn anew with all their rows. Best pair: the two measures whose mean rank "
    "does best, of those that most rows have, chosen on the rows that it is judged on, which flatters it; pair chosen "
    "elsewhere: the one that does best in the other panels, on their mean, judged here. Accuracy is of no pair, and at"
    " the end it is the share. Measures over taps are means over those without exact credit; what has no mark was not"
    " measured then, or is the same for all."
)


def _size(facts: Facts, snapshot: Snapshot) -> float | None:
    """−|log10 of credit over gradient|, mean over taps."""
    ratios = [(read(facts, snapshot, "ratio") or (None,) * len(facts.taps))[tap] for tap in facts.inexact_taps]
    return known_mean(-abs(math.log10(ratio)) if ratio else None for ratio in ratios)


def _small(facts: Facts, snapshot: Snapshot) -> float | None:
    found = growth(facts, snapshot)
    return None if found is None else -found


def _averaged(facts: Facts, snapshot: Snapshot) -> float | None:
    """The cosine of the mean of 16 draws, of a rule that draws noise; of others the mean is the credit."""
    return mean_over_taps("draw_cos" if facts.rule.draws_noise else "cos", facts, snapshot)


MEASURES: dict[str, Measure] = {
    "cosine": deep_cosine,
    "cosine of mean draw": _averaged,
    "weight cosine": partial(mean_over_taps, "stage_cos"),
    "ρ": partial(mean_over_taps, "rho"),
    "descent": partial(mean_over_taps, "descent"),
    "small growth": _small,
    "right size": _size,
    "rank of credit": partial(mean_over_taps, "rank_a"),
    ACCURACY: lambda facts, snapshot: snapshot.accuracy,
}
"""The larger, the better the rule is said to be."""


@dataclass(frozen=True)
class Verdict:
    """How well a measure, or two, rank the rows of a board at a moment."""

    measures: tuple[str, ...]
    epoch: int
    rank: Interval
    rows: int

    @property
    def name(self) -> str:
        return " + ".join(self.measures)


@dataclass(frozen=True, eq=False)
class Court:
    """The rows of a board with what each measure said of them."""

    board: Board

    @cached_property
    def shares(self) -> np.ndarray:
        return np.array([self.board.stands(entry).mean for entry in self.board.others])

    @cached_property
    def weights(self) -> np.ndarray:
        """How often each row is drawn, (draws, rows): a rule is drawn with all its rows."""
        rules = [entry.rule for entry in self.board.others]
        names = list(dict.fromkeys(rules))
        drawn = np.random.default_rng(0).multinomial(len(names), [1 / len(names)] * len(names), size=DRAWS)
        return drawn[:, [names.index(rule) for rule in rules]].astype(float)

    @cache  # noqa: B019 (lives as long as the page)
    def read(self, measure: str, epoch: int) -> np.ndarray:
        return np.array([entry.over_seeds(MEASURES[measure], epoch) for entry in self.board.others])

    @cache  # noqa: B019
    def judge(self, measures: tuple[str, ...], epoch: int) -> Verdict | None:
        """Spearman's correlation of their mean rank with the share, over rows that have them; None of few or alike."""
        values = np.array([self.read(measure, epoch) for measure in measures])
        rows = np.asarray(np.isfinite(values).all(axis=0))
        values, shares = values[:, rows], self.shares[rows]
        alike = rows.sum() < FEWEST or (np.ptp(values, axis=1) <= ALIKE * np.abs(values).max(axis=1)).any()
        if alike or (measures == (ACCURACY,) and epoch == -1):
            return None
        score = np.mean([mid_ranks(own)[0] for own in values], axis=0)
        found, drawn = float(spearman(score, shares)[0]), spearman(score, shares, self.weights[:, rows])
        low, high = np.nanquantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
        rules = len({entry.rule for entry, there in zip(self.board.others, rows, strict=True) if there})
        rank = Interval(found, low, high, rules, "bootstrap", over="rules")
        return Verdict(measures, epoch, rank, int(rows.sum()))

    def best(self, epoch: int) -> Verdict | None:
        """The best measure by itself."""
        alone = [self.judge((measure,), epoch) for measure in MEASURES]
        return max((one for one in alone if one), key=lambda one: one.rank.mean, default=None)


def best_pair(courts: Sequence[Court], epoch: int) -> tuple[str, ...]:
    """The two measures that rank best, on the mean over courts that can judge then, of those that most rows have.

    Others would be judged on easier rows.
    """
    pairs: list[tuple[str, ...]] = list(combinations([measure for measure in MEASURES if measure != ACCURACY], 2))
    told = [{pair: one for pair in pairs if (one := court.judge(pair, epoch))} for court in courts]
    told = [own for own in told if own]

    def place(pair: tuple[str, ...]) -> tuple[int, float]:
        return sum(own[pair].rows for own in told), sum(own[pair].rank.mean for own in told)

    return max((pair for pair in pairs if told and all(pair in own for own in told)), key=place, default=())


def judge_pairs(court: Court, courts: Sequence[Court], epoch: int) -> dict[str, Verdict]:
    """By row of the drawing: the best pair of a court, and that of the others, who did not choose by these rows."""
    others = [other for other in courts if other is not court]
    pairs = {PAIR: best_pair([court], epoch), ELSEWHERE: best_pair(others, epoch) if others else ()}
    return {name: found for name, pair in pairs.items() if pair and (found := court.judge(pair, epoch))}


def mid_ranks(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Ranks with ties at their middle, (draws, rows), of rows that were drawn `weights` times each (once)."""
    weights = np.ones((1, len(values))) if weights is None else weights
    below = (values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None])
    return weights @ below.T


def spearman(one: np.ndarray, other: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Spearman's rank correlation of each draw, (draws,)."""
    weights = np.ones((1, len(one))) if weights is None else weights
    apart = []
    for values in (one, other):
        ranks = mid_ranks(values, weights)
        apart.append(ranks - (weights * ranks).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True))
    both, first, second = (
        (weights * a * b).sum(axis=1) for a, b in ((apart[0], apart[1]), (apart[0],) * 2, (apart[1],) * 2)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return both / np.sqrt(first * second)


def find_courts(records: Sequence[Record]) -> tuple[list[Court], tuple[str, ...]]:
    """Of the boards whose gains are shares of BP's."""
    boards, gaps = find_boards(records)
    courts = [Court(board) for board in boards if board.shared and len(board.others) >= FEWEST]
    if not courts:
        raise CreditscopeError(
            f"Expected a setting in which BP gains from depth, by its interval over seeds, with {FEWEST} rows or more "
            "to rank, but got none. creditscope fetch league gets such records."
        )
    few = tuple(f"{b.name}: {count(len(b.others), 'row')}, too few to rank" for b in boards if len(b.others) < FEWEST)
    return courts, (*gaps, *few)


@register_figure("judges")
def plot_judges(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `league`: a panel for each setting that has rows enough."""
    courts, _ = find_courts(records)
    height = (0.26 if page.narrow else 0.29) * (len(MEASURES) + 1 + (len(courts) > 1)) + 0.4
    panels = [
        Panel(find_title(court), partial(draw_court, court=court, courts=courts), least=2.7, height=height)
        for court in courts
    ]
    return draw_page(page, panels, keys=_keys)


def find_title(court: Court) -> str:
    """How well cosine and growth rank at the end, and what ranks best after one epoch."""
    cosine, small, best = court.judge(("cosine",), -1), court.judge(("small growth",), -1), court.best(1)
    if not cosine or not small or not best:
        return f"{court.board.name}: rank correlation with the final share"
    said = [_short(one.rank.mean) for one in (cosine, small, best)]
    return (
        f"{court.board.name}: at the end the cosine ranks rules at {said[0]}, small growth at {said[1]}; "
        f"after one epoch {best.name} at {said[2]}"
    )


def draw_court(ax: Axes, court: Court, courts: Sequence[Court]) -> None:
    """A row for each measure, and for pairs: a mark with its interval for each moment."""
    rows = [*MEASURES, PAIR, *[ELSEWHERE] * (len(courts) > 1)]
    pairs = {epoch: judge_pairs(court, courts, epoch) for epoch in EPOCHS}
    ax.axvline(0, color=GREY, lw=0.7, ls=":", zorder=1)
    for y, name in enumerate(rows):
        for i, epoch in enumerate(EPOCHS):
            found = court.judge((name,), epoch) if name in MEASURES else pairs[epoch].get(name)
            if not found:
                continue
            at = y + (i - 1.5) * 0.2
            ax.plot(found.rank.ends, [at, at], color=INK, lw=0.7, zorder=2, gid=f"{name} {epoch} bar")
            look = {"mfc": GREYS[epoch], "mec": INK, "mew": 0.6, "ms": 4.2, "ls": ""}
            ax.plot([found.rank.mean], [at], "o", zorder=3, gid=f"{name} {epoch}", **look)
        ax.axhline(y + 0.5, color=BAND, lw=0.5, zorder=0)
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlim=(-1.02, 1.02), xlabel="rank correlation with final share")
    ax.set_xticks([-1, -0.5, 0, 0.5, 1])


def _keys(drawn: set[str]) -> list[Artist]:
    names = {epoch: "the end" if epoch == -1 else f"epoch {epoch}" for epoch in EPOCHS}
    return [grey_key(names[e], marker="o", mfc=GREYS[e], mec=INK, mew=0.6, ls="") for e in EPOCHS]


def describe(records: Sequence[Record]) -> Caption:
    """Every correlation with its interval, and which pairs are best."""
    courts, gaps = find_courts(records)
    panels, said = letters([court.board for court in courts]), list[Statement]()
    for court in courts:
        for epoch in EPOCHS:
            when = "at the end" if epoch == -1 else f"at epoch {epoch}"
            own = [court.judge((measure,), epoch) for measure in MEASURES]
            found = [(one, one.name) for one in own if one]
            found += [(pair, f"{name}: {pair.name}") for name, pair in judge_pairs(court, courts, epoch).items()]
            for one, name in found:
                how = {"panel": panels[court.board.name], "form": "+.2f", "verdict": f"{one.rows} rows"}
                said.append(Statement(f"rank correlation {when}", name, one.rank, **how))
    rows = "; ".join(
        f"{panels[c.board.name]}{': ' * bool(panels[c.board.name])}{c.board.setting}; {len(c.shares)} rows"
        for c in courts
    )
    return Caption(TITLE, READING, rows, tuple(said), gaps)


def _short(value: float) -> str:
    return number(value, ".2f").replace("0.", ".", 1)
