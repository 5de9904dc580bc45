"""DFA by λ, normalisation of its credit and terminal norm: what its blocks are worth, and what of it was published."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from creditscope.auditing.depth import DepthUse, use_of_depth
from creditscope.auditing.methods import group_methods
from creditscope.auditing.stats import Interval, t_bounds, t_interval
from creditscope.auditing.thresholds import Thresholds
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, say_setting
from creditscope.paper.figures.normalisation import key_of, select
from creditscope.paper.published.explained import count_inside, explain, is_audited_net
from creditscope.plots import Caption, Statement
from creditscope.plots._style import BAND, SMALL
from creditscope.record import Record
from creditscope.record.pick import Key, Picked, spec_of
from creditscope.record.spec import COMPARED_NORMS
from creditscope.text import DASH, number, power

LIMITS = Thresholds()
LEAST = 100 * LIMITS.depth_gain
"""The smallest gain that counts, pp."""
TINTS = {"less": "#f9e3d3", "open": "white", "more": "#86b4dc"}
"""Of cells, by their interval against the smallest gain that counts; in grey the one is light and the other is not."""
WORDS = {"less": f"gain under {LEAST:g} pp", "more": f"gain over {LEAST:g} pp"}
NAMES = {"none": "as it is", "batch": "per batch", "sample": "per sample"}
TITLE = "DFA by penalty λ, normalisation of its credit and terminal norm: what its trained blocks are worth."
READING = (
    "A cell for each λ (columns) and normalisation of credit (rows): accuracy over the better frozen baseline in pp, "
    "paired over seeds, tinted where its bound (one-sided 95 % t, as in CS004) lies on one side of the smallest gain "
    "that counts; a dash: not on record. Below it: "
    "how many of the numbers published of DFA at this λ, on this net, are inside the interval of the cell, of those "
    "that every normalisation has, at equal n; most were published after more epochs than are trained here."
)


Answer = Literal["less", "open", "more"]


@dataclass(frozen=True)
class Phases:
    """The cells of one terminal norm: what they gain, and what they explain."""

    setting: str
    found: Picked
    uses: dict[Key, DepthUse | None]

    @property
    def cells(self) -> list[tuple[str, float]]:
        """By normalisation and λ."""
        own = [cell.key for cell in self.found if cell.key[:2] == (self.setting, "DFA")]
        return [(norm, penalty) for _, _, norm, penalty in own]

    @property
    def penalties(self) -> list[float]:
        return sorted({penalty for _, penalty in self.cells})

    def gains(self, norm: str, penalty: float) -> list[float]:
        """Over the better frozen baseline, pp, by seed; none: not on record."""
        use = self.uses.get((self.setting, "DFA", norm, penalty))
        return [100 * gain for gain in use.gains] if use else []

    def gain(self, norm: str, penalty: float) -> Interval | None:
        """Their mean with its interval."""
        found = self.gains(norm, penalty)
        return t_interval(found) if found else None

    def answer(self, norm: str, penalty: float) -> Answer:
        """Whether they are shown to be over the smallest gain that counts, or under it, as CS004 asks."""
        found = self.gains(norm, penalty)
        if len(found) < max(LIMITS.seeds, 2):
            return "open"
        low, high = t_bounds(found, confidence=LIMITS.depth_confidence)
        return "more" if low >= LEAST else "less" if high < LEAST else "open"

    @cached_property
    def explained(self) -> dict[tuple[str, float], tuple[int, int]]:
        """Published numbers inside, and of how many; of no other net than theirs."""
        counted = {}
        for penalty in self.penalties:
            records = {norm: self.found[self.setting, "DFA", norm, penalty].records for norm in COMPARED_NORMS}
            there = {norm: own for norm, own in records.items() if own}
            specs = [spec_of(record) for own in there.values() for record in own]
            if specs and all(map(is_audited_net, specs)):
                bare = bool(specs[0].net_options["terminal_norm"])
                found = explain(there, penalty, terminal_norm=bare)
                counted |= {(norm, penalty): count_inside(own) for norm, own in found.items()}
        return counted

    @property
    def best(self) -> tuple[tuple[str, float], Interval] | None:
        """The cell that gains most."""
        known = [(cell, gain) for cell in self.cells if (gain := self.gain(*cell))]
        return max(known, key=lambda one: one[1].mean, default=None)


def find_phases(records: Sequence[Record]) -> tuple[Picked, list[Phases]]:
    """With terminal norm and without."""
    found = select(records)
    uses = {key_of(method): use_of_depth(method) for method in group_methods(found.records)}
    return found, [Phases(setting, found, uses) for setting in found.along("setting")]


@register_figure("phase")
def plot_phase(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `phase`: a panel for each terminal norm."""
    _, phases = find_phases(records)
    panels = [Panel(find_title(own), partial(draw_cells, phases=own), least=2.55, height=1.25) for own in phases]
    return draw_page(page, panels, keys=_keys)


def find_title(phases: Phases) -> str:
    """The cell that gains most, or that none gains what counts."""
    net = phases.setting.split(", ")[1]
    if phases.best is None:
        return f"{net}: no frozen baselines"
    (norm, penalty), gain = phases.best
    if phases.answer(norm, penalty) != "more":
        return f"{net}: no cell is shown to gain {LEAST:g} pp"
    return f"{net}: most is gained at λ\u00a0=\u00a0{power(penalty)}, {NAMES[norm]}: {_signed(gain)}\u00a0pp"


def draw_cells(ax: Axes, phases: Phases) -> None:
    """Rows by normalisation, columns by λ."""
    penalties = phases.penalties
    answers = [[list(TINTS).index(phases.answer(norm, p)) for p in penalties] for norm in COMPARED_NORMS]
    tints = ListedColormap(list(TINTS.values()))
    ax.pcolormesh(answers, cmap=tints, vmin=0, vmax=len(TINTS) - 1, edgecolors=BAND, lw=0.5)
    for (y, norm), (x, penalty) in product(enumerate(COMPARED_NORMS), enumerate(penalties)):
        gain, (inside, of) = phases.gain(norm, penalty), phases.explained.get((norm, penalty), (0, 0))
        said = _signed(gain) if gain else DASH
        weight = "normal" if phases.answer(norm, penalty) == "open" else "bold"
        lines, name = [(said, weight)] + [(f"{inside} of {of}", "normal")] * bool(of), f"{norm} {penalty:g}"
        for i, (text, own) in enumerate(lines):
            middle, style = (0.3, 0.72)[i] if of else 0.5, {"size": SMALL, "ha": "center", "va": "center"}
            ax.text(x + 0.5, y + middle, text, weight=own, gid=name + " of" * i, **style)
    ax.set_xticks(np.arange(len(penalties)) + 0.5, ["0" if not p else power(p) for p in penalties])
    ax.set_yticks(np.arange(len(COMPARED_NORMS)) + 0.5, [NAMES[norm] for norm in COMPARED_NORMS])
    ax.set(ylim=(len(COMPARED_NORMS), 0), xlabel="penalty λ")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _keys(drawn: set[str]) -> list[Artist]:
    return [Patch(facecolor=TINTS[way], edgecolor=BAND, label=word) for way, word in WORDS.items()]


def _signed(gain: Interval) -> str:
    return number(gain.mean, "+.1f")


def describe(records: Sequence[Record]) -> Caption:
    """Of every cell what it gains and what it explains."""
    found, phases = find_phases(records)
    said: list[Statement] = []
    for own in phases:
        for norm, penalty in own.cells:
            of, gain = {"group": f"{norm}, λ = {power(penalty)}", "panel": own.setting}, own.gain(norm, penalty)
            said.append(
                Statement(
                    "gain over frozen, pp",
                    value=gain,
                    form="+.1f",
                    verdict=own.answer(norm, penalty) if gain else "",
                    **of,
                )
            )
            inside, numbers = own.explained.get((norm, penalty), (0, 0))
            if numbers:
                said.append(Statement("published numbers inside", value=f"{inside} of {numbers}", **of))
    return Caption(TITLE, READING, say_setting(found), tuple(said), found.gaps)
