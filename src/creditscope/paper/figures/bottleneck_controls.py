"""Why BP returns zero in a deep GCN: the collapsing recipe under one change at a time, accuracy and zero gradients."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._controls import CONFIDENCE, MARGIN, Block, ControlRow, Controls, select_controls
from creditscope.paper.figures._layout import LETTERS, draw_key, grey_key, head, make_page, say_setting
from creditscope.paper.studies.bottleneck_controls import CONTROLS
from creditscope.plots import Caption, Estimate, Statement, forest
from creditscope.plots._panel import laid_out_once
from creditscope.plots._style import AMBER, GREY, INK, styled
from creditscope.record import Record
from creditscope.rule_styles import LOOKS as RULES

BLUE, RED = RULES["bp"].colour, RULES["dfa"].colour
LOOKS = {
    "learns": ("o", BLUE, "learns: the collapse is gone"),
    "undecided": ("v", AMBER, "undecided"),
    "zeros gone": ("P", AMBER, "fails, but without zero gradients"),
    "fails": ("X", RED, "fails: the collapse stays"),
}
"""Marker, colour and meaning by answer; what has none of these is an open circle."""
ZEROS: dict[str, tuple[Callable[[ControlRow], tuple[int, int]], str, float]] = {
    "float32 norm 0": (ControlRow.zero_norms, "#9ecae1", 0.62),
    "every element 0": (ControlRow.all_zero, "#08519c", 0.3),
}
"""The two kinds of zero gradients: their count, and colour and height of a bar."""
SIZES: dict[str, Callable[[ControlRow], float]] = {
    "output error ‖∂L/∂Z‖": ControlRow.output_error,
    "probe accuracy": ControlRow.probe,
    "spread of nodes": ControlRow.dispersion,
    "decay term over gradient": ControlRow.decay_ratio,
}
TITLE = "Backprop in deep GCNs by one recipe, with one thing changed at a time."
READING = (
    "Two panels for each depth L, a row for each change. Left: mean accuracy with its 95 % t interval over seeds, each "
    "seed a tick. Right: the share of weight gradients, over layers and seeds, that are 0. A seed has collapsed if it "
    f"is not above the majority class by {100 * MARGIN:g} pp. A change is judged where every seed of the baseline has, "
    f"PairNorm where every seed of the row-normalised Â has. It learns if the lower {100 * CONFIDENCE:g} % t bounds of "
    f"its accuracy over the majority class and of its paired gain are above {100 * MARGIN:g} pp; it fails if all its "
    "seeds have collapsed, too (zeros gone: but no float32 norm is 0); else it is undecided. In the table: probe, "
    "median over hidden layers; spread, RMS about the mean node over RMS in the last hidden layer; decay term and "
    "gradient, weight decay · ‖W‖ and ‖∂L/∂W‖ before training, median over layers; all medians over seeds."
)


@register_figure("bottleneck_controls")
def plot_bottleneck_controls(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `bottleneck_controls`: BP under every control at every depth."""
    found = select_controls(records)
    with styled():
        page: dict[str, Any] = {"height": 3.4, "sharey": True, "width_ratios": (5, 2) * len(found.blocks)}
        fig, axes = make_page(1, 2 * len(found.blocks), **page)
        pairs = axes.reshape(-1, 2)
        with laid_out_once(fig, notes=False):
            for letter, block, (left, right) in zip(LETTERS, found.blocks, pairs, strict=False):
                _draw_accuracies(left, block)
                _draw_zeros(right, block)
                head(left, letter, f"L = {block.depth}")
                left.tick_params(axis="y", labelleft=left is axes[0, 0])
        reach = max(ax.get_xlim()[1] for ax in pairs[:, 0])
        for ax in pairs[:, 0]:
            ax.set_xlim(0, reach)
        draw_key(fig, _keys(found))
    return fig


def _draw_accuracies(ax: Axes, block: Block) -> None:
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
    ax.set_xlabel("accuracy")
    ax.xaxis.set_major_formatter("{x:g}")


def _draw_zeros(ax: Axes, block: Block) -> None:
    for y, row in enumerate(block.rows):
        for kind, (count, colour, height) in ZEROS.items():
            zeros, total = count(row)
            if total:
                ax.barh(y, zeros / total, height, color=colour, lw=0, zorder=2, gid=f"{row.control.name} {kind}")
    ax.set(xlim=(0, 1), xlabel="zero\ngradients")
    ax.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    ax.tick_params(axis="y", length=0, labelleft=False)


def _keys(found: Controls) -> list[Line2D | Patch]:
    used = {row.answer for block in found.blocks for row in block.rows}
    dots = {answer: look for answer, look in LOOKS.items() if answer in used}
    return [
        *(Line2D([], [], marker=m, color=colour, ls="", ms=4, label=said) for m, colour, said in dots.values()),
        Line2D([], [], marker="o", mec=INK, mfc="white", ls="", ms=4, mew=0.7, label="compared with, or not judged"),
        grey_key("mean, 95 % t interval over seeds", marker="o", mfc="white"),
        grey_key("each seed", marker="|", ls=""),
        grey_key("majority class", ls="--"),
        grey_key("chance", ls=":"),
        *(Patch(facecolor=colour, label=f"share with {kind}") for kind, (_, colour, _) in ZEROS.items()),
    ]


def describe(records: Sequence[Record]) -> Caption:
    """Of every control its accuracy and answer, zeros, sizes, and what would be a cause if it alone learns."""
    found = select_controls(records)
    said = [Statement("explanation that it tests", c.name, c.blames) for c in CONTROLS if c.blames]
    for block in found.blocks:
        panel = {"panel": f"L = {block.depth}"}
        said.append(Statement("accuracy", "majority class", block.facts.best_constant, **panel))
        for row in block.rows:
            name, counts = row.control.name, {"seeds that collapsed": row.count_collapsed(block.majority)}
            counts |= {f"gradients with {kind}": count(row) for kind, (count, *_) in ZEROS.items()}
            said.append(Statement("accuracy", name, row.accuracy(), row.answer, **panel))
            said += [Statement(what, name, f"{n} of {all_}", **panel) for what, (n, all_) in counts.items() if all_]
            sizes = {what: size(row) for what, size in SIZES.items()}
            said += [Statement(what, name, s, form=".2g", **panel) for what, s in sizes.items() if not math.isnan(s)]
    setting = say_setting(found.picked).replace(f"depth {found.picked.along('depth')[0]}, ", "")
    rows = f"accuracy on {found.blocks[0].facts.test_rows:,} test nodes"
    gaps = tuple(f"L = {gap}" for gap in found.picked.gaps)
    return Caption(TITLE, READING, f"{setting}; {rows}", tuple(said), gaps)
