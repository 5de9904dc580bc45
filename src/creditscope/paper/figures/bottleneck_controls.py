"""Why BP returns zero in a deep GCN: the collapsing recipe under one change at a time, accuracy and zero gradients.

Per depth a row for each control, and which removes the collapse; what "removes" means is defined here and nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from creditscope.auditing.stats import Interval, t_bounds, t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._depths import decay_ratios
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key, say_setting
from creditscope.paper.studies.bottleneck_controls import BASELINE, CONTROLS, FIELDS, NET, Control
from creditscope.plots import Caption, Estimate, Statement, forest
from creditscope.plots._style import AMBER, GREY, INK
from creditscope.record import Facts, Record, RunSpec
from creditscope.record.pick import Cell, Picked, pick
from creditscope.rule_styles import LOOKS as RULES

MARGIN = 0.05
"""Accuracy over the majority class, and over the runs compared with, that counts as learning: 5 pp."""
CONFIDENCE = 0.95
"""Of the one-sided lower bounds over seeds that must be above it."""
UNTRAINED = Control("untrained net", "")
FREE = (*FIELDS, *(f"net_options.{name}" for name in NET), "task_options.normalisation")
"""What controls change."""
ControlAnswer = Literal["learns", "zeros gone", "fails", "undecided", "not judged", ""]
"""Of a control: learning returns; it does not, but the zeros go; neither; seeds disagree; what it is held against has
not collapsed in every seed; no answer (no runs, or a row that others are held against)."""


@dataclass(frozen=True)
class ControlRow:
    """One control at one depth, over seeds: at the end, of the untrained net at the start."""

    control: Control
    cell: Cell
    answer: ControlAnswer = ""

    def values(self, quantity: str) -> np.ndarray:
        """(seeds,) or (seeds, layers); NaN where it was not measured."""
        return self.cell.values(quantity, untrained=self.control is UNTRAINED)

    def accuracies(self) -> dict[int, float]:
        """By seed, where measured."""
        return self.cell.by_seed("accuracy", untrained=self.control is UNTRAINED)

    def accuracy(self) -> Interval | None:
        values = list(self.accuracies().values())
        return t_interval(values) if values else None

    def count_collapsed(self, majority: float) -> tuple[int, int]:
        """Seeds not above the majority class by the margin (a net with one answer cannot be), and all seeds."""
        values = self.accuracies().values()
        return sum(value <= majority + MARGIN for value in values), len(values)

    def count_zeros(self, kind: str) -> tuple[int, int]:
        """Weight gradients that are zero in a way of `ZEROS`, of all layers and seeds, and how many there are."""
        quantity, is_zero = ZEROS[kind]
        values = self.values(quantity)
        return int(is_zero(values).sum()), int((~np.isnan(values)).sum())

    def dispersion(self) -> np.ndarray:
        """Dispersion over RMS of the last hidden layer: 0 if all nodes are alike."""
        spread, size = (self.values(f"layers.{name}")[..., -2:-1] for name in ("dispersion", "rms"))
        return spread / np.where(size > 0, size, np.nan)


@dataclass(frozen=True)
class Block:
    """All rows of one depth, the baseline first."""

    depth: int
    rows: tuple[ControlRow, ...]
    facts: Facts
    majority: float
    """Accuracy of the best constant answer."""


def select_controls(records: Sequence[Record]) -> tuple[list[Block], Picked]:
    """The depths at which the baseline has a complete run, and all cells of known controls with their gaps.

    Refuses runs that differ in more than what the controls change.
    """
    axes = {"depth": "net_options.depth", "control": control_name}
    found = pick(records, vary=axes, where={"net": "gcn", "rule": "bp"}, free=FREE)
    depths = found.along("depth")
    blocks = [_judge_depth(found, depth) for depth in depths if found[depth, BASELINE.name]]
    if not blocks:
        raise CreditscopeError(
            f"Expected a complete run of the {BASELINE.name}, which controls are compared with, but got none among "
            f"{len(records)} records. creditscope figure bottleneck_controls trains them."
        )
    cells = {(depth, control.name): found[depth, control.name] for depth in depths for control in CONTROLS}
    cells |= {row.cell.key: row.cell for block in blocks for row in block.rows}
    return blocks, Picked(found.axes, cells, found.seeds)


def control_name(spec: RunSpec) -> str | None:
    """Of the control that a run of BP belongs to."""
    return next((control.name for control in CONTROLS if control.holds(spec)), None)


def _judge_depth(found: Picked, depth: int) -> Block:
    """The rows of one depth with their answers, and the untrained net below the baseline."""
    rows = {control.name: ControlRow(control, found[depth, control.name]) for control in CONTROLS}
    baseline = rows.pop(BASELINE.name)
    facts = baseline.cell.first.facts
    early = {seed: r for seed, r in baseline.cell.runs.items() if r.snapshots[0].epoch == 0}
    late = dict.fromkeys(baseline.cell.runs.keys() - early, "not measured before training")
    untrained = ControlRow(UNTRAINED, Cell((depth, UNTRAINED.name), early, {**baseline.cell.lost, **late}, {}))
    majority, judged = facts.best_constant or 0.0, []
    for row in rows.values():
        reference = rows[row.control.against.name] if row.control.against else baseline
        judged.append(replace(row, answer=judge(row, reference, majority=majority)))
    return Block(depth, (baseline, untrained, *judged), facts, majority)


def judge(row: ControlRow, reference: ControlRow, *, majority: float) -> ControlAnswer:
    """Whether the control removes the collapse of the reference.

    Learns: the lower bounds of its accuracy over the majority class, and of its paired gain over the reference, are
    above the margin. Fails: no seed is above the majority class by the margin; zeros gone if, unlike the reference, no
    norm of it is zero.
    """
    own, others = row.accuracies(), reference.accuracies()
    if not own or not others:
        return ""
    (collapsed, seeds), (before, of) = (each.count_collapsed(majority) for each in (row, reference))
    if before < of:
        return "not judged"
    if collapsed == seeds:
        before, after = (each.count_zeros(FLOAT32)[0] for each in (reference, row))
        return "zeros gone" if before and not after else "fails"
    gains = [own[seed] - others[seed] for seed in own if seed in others]
    if len(gains) < 2:  # one seed has no bound
        return "undecided"
    bounds = [t_bounds(values, confidence=CONFIDENCE)[0] for values in ([a - majority for a in own.values()], gains)]
    return "learns" if all(low > MARGIN for low in bounds) else "undecided"


BLUE, RED = RULES["bp"].colour, RULES["dfa"].colour
LOOKS = {
    "learns": ("o", BLUE, "learns: the collapse is gone"),
    "undecided": ("v", AMBER, "undecided"),
    "zeros gone": ("P", AMBER, "fails, but without zero gradients"),
    "fails": ("X", RED, "fails: the collapse stays"),
}
"""Marker, colour and meaning by answer; what has none of these is an open circle."""
FLOAT32 = "float32 norm 0"
ZEROS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    FLOAT32: ("weights.exact_float32", lambda norms: norms == 0),
    "every element 0": ("weights.exact_all_zero", lambda flags: flags > 0),
}
"""The two kinds of zero gradients: where they are read and what is zero there."""
LEAST, ROWS = 3.0, 2.1
"""Width of a panel that has names, and height of its rows, inches."""
SIZES: dict[str, Callable[[ControlRow], np.ndarray]] = {
    "output error ‖∂L/∂Z‖": lambda row: row.values("layers.z_grad")[..., -1:],
    "probe accuracy": lambda row: row.values("layers.probe")[..., 1:-1],  # of the middle layers H_1..H_{L−1}
    "spread of nodes": ControlRow.dispersion,
    "decay term over gradient": lambda row: decay_ratios(row.cell) if row.cell else np.array([]),
}
"""Of which the median is told, over layers and seeds."""
TITLE = "Backprop in deep GCNs by one recipe, with one thing changed at a time."
READING = (
    "A panel for each depth L, a row for each change: mean accuracy with its 95 % t interval over seeds, each seed a "
    "tick. In the table: weight gradients that are 0, over layers and seeds. A seed has collapsed if it "
    f"is not above the majority class by {100 * MARGIN:g} pp. A change is judged where every seed of the baseline has, "
    f"PairNorm where every seed of the row-normalised Â has. It learns if the lower {100 * CONFIDENCE:g} % t bounds of "
    f"its accuracy over the majority class and of its paired gain are above {100 * MARGIN:g} pp; it fails if all its "
    "seeds have collapsed, too (zeros gone: but no float32 norm is 0); else it is undecided. In the table, too: probe, "
    "median over hidden layers; spread, RMS about the mean node over RMS in the last hidden layer; decay term and "
    "gradient, weight decay · ‖W‖ and ‖∂L/∂W‖ before training, median over layers; all medians over seeds."
)


@register_figure("bottleneck_controls")
def plot_bottleneck_controls(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `bottleneck_controls`: BP under every control at every depth."""
    blocks, _ = select_controls(records)
    reach = max([a for block in blocks for row in block.rows for a in row.accuracies().values()], default=1.0)
    least = LEAST if page.narrow else page.width / len(blocks)
    panels = [
        Panel(
            find_title(block),
            partial(_draw_accuracies, block, reach, first=block is blocks[0] or page.narrow),
            least,
            ROWS,
        )
        for block in blocks
    ]
    return draw_page(page, panels, keys=lambda _: _keys(blocks), share={"y": "all"})


def find_title(block: Block) -> str:
    """How many changes bring learning back, or that the baseline has not collapsed."""
    judged = [row.answer for row in block.rows if row.answer in LOOKS]
    if judged:
        return f"L = {block.depth}: {judged.count('learns')} of {len(judged)} changes bring learning back"
    collapsed, seeds = block.rows[0].count_collapsed(block.majority)
    return (
        f"L = {block.depth}: {f'{seeds - collapsed} of {seeds} seeds of the baseline learn' if seeds else 'baseline'}"
    )


def _draw_accuracies(block: Block, reach: float, ax: Axes, *, first: bool) -> None:
    estimates = []
    for row in block.rows:
        marker, colour, _ = LOOKS.get(row.answer, ("o", INK, ""))
        look = {"marker": marker, "colour": colour, "face": colour if row.answer in LOOKS else "white"}
        values = list(row.accuracies().values())
        estimates.append(Estimate(row.control.name, values, **look, note="" if values else "not on record"))
    forest(estimates, ax=ax)
    levels = ((block.facts.best_constant, "--", "majority class"), (block.facts.chance, ":", "chance"))
    for value, dashes, name in levels:
        if value is not None:
            ax.axvline(value, color=GREY, lw=0.7, ls=dashes, zorder=1, gid=name)
    ax.set(xlabel="accuracy", xlim=(0, 1.03 * reach))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.tick_params(axis="y", labelleft=first)


def _keys(blocks: Sequence[Block]) -> list[Line2D]:
    used = {row.answer for block in blocks for row in block.rows}
    dots = {answer: look for answer, look in LOOKS.items() if answer in used}
    return [
        *(Line2D([], [], marker=m, color=colour, ls="", ms=4, label=said) for m, colour, said in dots.values()),
        Line2D([], [], marker="o", mec=INK, mfc="white", ls="", ms=4, mew=0.7, label="compared with, or not judged"),
        grey_key("mean, 95 % t interval over seeds", marker="o", mfc="white"),
        grey_key("each seed", marker="|", ls=""),
        grey_key("majority class", ls="--"),
        grey_key("chance", ls=":"),
    ]


def describe(records: Sequence[Record]) -> Caption:
    """Of every control its accuracy and answer, zeros, sizes, and what would be a cause if it alone learns."""
    blocks, picked = select_controls(records)
    said = [Statement("explanation that it tests", c.name, c.blames) for c in CONTROLS if c.blames]
    for block in blocks:
        panel = {"panel": f"L = {block.depth}"}
        said.append(Statement("accuracy", "majority class", block.facts.best_constant, **panel))
        for row in block.rows:
            name, counts = row.control.name, {"seeds that collapsed": row.count_collapsed(block.majority)}
            counts |= {f"gradients with {kind}": row.count_zeros(kind) for kind in ZEROS}
            said.append(Statement("accuracy", name, row.accuracy(), row.answer, **panel))
            said += [Statement(what, name, f"{n} of {all_}", **panel) for what, (n, all_) in counts.items() if all_]
            for what, read in SIZES.items():
                values = read(row)
                if (known := values[np.isfinite(values)]).size:
                    said.append(Statement(what, name, float(np.median(known)), form=".2g", **panel))
    setting = say_setting(picked).replace(f"depth {picked.along('depth')[0]}, ", "")
    rows = f"accuracy on {blocks[0].facts.test_rows:,} test nodes"
    gaps = tuple(f"L = {gap}" for gap in picked.gaps)
    return Caption(TITLE, READING, f"{setting}; {rows}", tuple(said), gaps)
