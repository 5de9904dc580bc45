"""Deep GCNs by backprop: the gradient each weight gets, and what a linear probe reads off each state.

Every number comes from the first and last snapshots of the records.
"""

import math
from collections.abc import Sequence
from functools import partial
from statistics import stdev

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from creditscope.paper.figures import _depths, register_figure
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key
from creditscope.plots import Caption, Statement
from creditscope.plots._style import BAND, GREY, INK, SMALL
from creditscope.record import Record
from creditscope.record.pick import Cell, Picked
from creditscope.text import DASH, number

DIFFERS = 0.01
"""Relative difference from which on a float32 norm is drawn beside the true one."""
ZEROS = ("a float32 norm of 0", "every element 0")
ALIKE = 0.01
"""Relative difference up to which an output error is that of equal probabilities."""
TITLE = "Deep GCNs by backprop: the gradient of each weight, and a linear probe of each state."
READING = (
    "Lines are medians and bands quartiles over seeds, after training. A: Frobenius norms of the gradient of the loss "
    "without its decay term; 0: every element is 0, or, hollow, the norm computed in float32 is. B: accuracy on test "
    "nodes; H₀ is the input, the last state the output; a constant state has no probe. C: mean accuracy ± sd; weight "
    "gradients that are 0, of all layers and seeds; the output error, the median ‖∂L/∂Z‖ of the logits, beside that of "
    "a net that gives every class the same probability; probes between input and output are medians, too. "
    "Decay over gradient: weight decay times ‖W‖ by ‖∂L/∂W‖ before the first step, median over layers and seeds, "
    "unless the optimiser keeps the two apart."
)


@register_figure("bp_bottleneck")
def plot_bp_bottleneck(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `bp_bottleneck`: one net at several depths, many seeds each."""
    found = _depths.pick_depths(records)

    def keys(drawn: set[str]) -> list[Line2D]:
        marks = _depths.depth_keys(found, named=True)
        if any(gid.endswith("float32") for gid in drawn):
            marks.append(grey_key("norm in float32, where it differs", ls="", marker="s", mfc="white"))
        return marks + [grey_key("chance", ls=":")] * ("chance" in drawn)

    gradients, probes, table = find_titles(found)
    panels = [
        Panel(gradients, partial(draw_gradients, found=found), least=1.55),
        Panel(probes, partial(draw_probes, found=found), least=1.55),
        Panel(table, partial(draw_table, found=found), least=2.3, height=1.5),
    ]
    return draw_page(page, panels, keys=keys)


def find_titles(found: Picked) -> tuple[str, str, str]:
    """At which depths gradients are 0 in float32, and what probes still read there; else what is drawn."""
    norms32 = {_depths.name(cell): cell.values("weights.exact_float32") for cell in found.drawn}
    zero = [depth for depth, own in norms32.items() if own.size and (own == 0).all()]
    middle = {_depths.name(cell): _depths.median(cell.values("layers.probe")[:, 1:-1]) for cell in found.drawn}
    still = [value for depth in zero if (value := middle[depth]) is not None]
    chance = found.first.facts.chance
    return (
        f"{_join(zero)}: every norm is 0 in float32" if zero else "Gradient of each weight",
        f"Probes still read {number(min(still), '.2f')} there (chance {number(chance, '.2f')})"
        if still and chance is not None and min(still) > chance
        else "Linear probe of each state",
        "BP by depth, over seeds",
    )


def _join(depths: Sequence[str]) -> str:
    """L = 10, 20."""
    return ", ".join([depths[0], *(depth.removeprefix("L = ") for depth in depths[1:])])


def describe(records: Sequence[Record]) -> Caption:
    """Accuracy, zero gradients, output error, probes and decay, by depth."""
    found = _depths.pick_depths(records)
    facts, uniform = found.first.facts, uniform_error(found)
    said = [statement for cell in found.drawn for statement in _state(cell, uniform)]
    said.append(Statement("output error", "equal probabilities", uniform))
    levels = {"chance": facts.chance, "commonest class": facts.best_constant}
    said += [Statement("accuracy", group, value) for group, value in levels.items()]
    nodes = f"{found.first.last.rows_covered} nodes with labels, {facts.test_rows} test nodes"
    setting = f"{_depths.say_recipe(found.first, found.seeds)}; {nodes}"
    return Caption(TITLE, READING, setting, tuple(said), tuple(f"L = {gap}" for gap in found.gaps))


def draw_gradients(ax: Axes, found: Picked) -> None:
    """A: ‖∂L/∂W_l‖ by layer, and its float32 norm where that differs; zeros at the foot of the axis."""
    plain = {cell.key: float32_line(cell) for cell in found.drawn}
    floor = _depths.draw_log_axis(ax, [*(norms(cell) for cell in found.drawn), *plain.values()])
    _depths.draw_by_layer(ax, found, norms, floor=floor)
    for cell in found.drawn:
        if not np.isnan(own := plain[cell.key]).all():
            look = {**_depths.look_of(found, cell), "ls": "", "mfc": "white", "ms": 2.6, "zorder": 5}
            ax.plot(np.maximum(own, floor), gid=f"{_depths.name(cell)} float32", **look)
    ax.set(xlabel="layer l", ylabel="‖∂L/∂Wₗ‖")


def draw_probes(ax: Axes, found: Picked) -> None:
    """B: probe accuracy by state, and chance."""
    _depths.draw_by_layer(ax, found, lambda cell: cell.values("layers.probe"))
    if (chance := found.first.facts.chance) is not None:
        ax.axhline(chance, color=GREY, lw=0.8, ls=":", zorder=1, gid="chance")
    ax.set(ylim=(0, ax.get_ylim()[1]), xlabel="state Hₗ", ylabel="probe accuracy")


def draw_table(ax: Axes, found: Picked) -> None:
    """C: a column for each depth, of what is stated."""
    rows, uniform = table_rows(found), uniform_error(found)
    ax.axis("off")
    heights = [1 + 0.8 * row[0].count("\n") for row in rows]
    middles = np.cumsum(heights) - np.array(heights) / 2
    ax.set(xlim=(0, 1), ylim=(sum(heights) + 0.8, 0))
    places = np.linspace(1, 0.52 if len(found.drawn) > 1 else 1, len(found.drawn))[::-1]
    for y, height, (name, *cells) in zip(middles, heights, rows, strict=True):
        how = {"size": SMALL, "va": "center", "color": INK if name else GREY}
        ax.text(0, y, name, linespacing=1.1, **how)
        for x, cell in zip(places, cells, strict=True):
            ax.text(x, y, cell, ha="right", **how)
        ax.axhline(y + height / 2, color=BAND, lw=0.5)
    ax.text(
        0, sum(heights) + 0.1, f"‖∂L/∂Z‖ of equal answers: {number(uniform, '.2g')}", size=SMALL, color=GREY, va="top"
    )


def table_rows(found: Picked) -> list[list[str]]:
    """The table, its heading first: accuracy in %, mean ± sd; zeros of both kinds; output error; middle probe."""
    columns = []
    for cell in found.drawn:
        own, said = cell.values("accuracy"), {s.quantity: s for s in _state(cell, uniform_error(found))}
        mean, sd = float(np.nanmean(own)), said["accuracy, sd over seeds"].value
        zeros = [str(said[f"weight gradients with {kind}"].value).replace(" of ", "/") for kind in ZEROS]
        error, probe = said["output error"].value, said["probe accuracy between input and output"].value
        accuracy = (
            f"{number(100 * mean, '.0f')} ± {number(100 * sd, '.0f')}"
            if isinstance(sd, float)
            else number(100 * mean, ".0f")
        )
        sizes = [number(v, ".2g") if isinstance(v, float) else DASH for v in (error, probe)]
        columns.append([_depths.name(cell), accuracy, *zeros, *sizes])
    names = ["", "accuracy, %", "float32\nnorm is 0", "every\nelement 0", "‖∂L/∂Z‖", "probe"]
    return [list(row) for row in zip(names, *columns, strict=True)]


def norms(cell: Cell) -> np.ndarray:
    """‖∂L/∂W_l‖, (seeds, layers)."""
    return cell.values("weights.exact_norm")


def float32_line(cell: Cell) -> np.ndarray:
    """The median plain float32 norm of every layer where it is not the true one; NaN elsewhere."""
    true, plain = _depths.quartiles(norms(cell))[1], _depths.quartiles(cell.values("weights.exact_float32"))[1]
    return np.where(np.abs(plain - true) > DIFFERS * true, plain, np.nan)


def uniform_error(found: Picked) -> float:
    """‖∂L/∂Z‖_F of a uniform softmax: √((C − 1)/C)/√n for n labelled rows."""
    classes = found.first.facts.classes
    return math.sqrt((classes - 1) / classes) / math.sqrt(found.first.last.rows_covered)


def _state(cell: Cell, uniform: float) -> list[Statement]:
    accuracy, probe, medians = cell.values("accuracy"), cell.values("layers.probe"), _depths.quartiles(norms(cell))[1]
    plain, all_zero = cell.values("weights.exact_float32"), cell.values("weights.exact_all_zero")
    known, medians = accuracy[~np.isnan(accuracy)].tolist(), medians[~np.isnan(medians)].tolist()
    error = _depths.median(cell.values("layers.z_grad")[:, -1])
    alike = error is not None and abs(error / uniform - 1) < ALIKE
    found = {
        "accuracy, sd over seeds": stdev(known) if len(known) > 1 else None,
        "smallest median gradient of a weight": min(medians, default=None),
        "largest median gradient of a weight": max(medians, default=None),
        f"weight gradients with {ZEROS[0]}": f"{(plain == 0).sum()} of {(~np.isnan(plain)).sum()}",
        f"weight gradients with {ZEROS[1]}": f"{(all_zero > 0).sum()} of {(~np.isnan(all_zero)).sum()}",
        "probe accuracy between input and output": _depths.median(probe[:, 1:-1]),
        "the same before training": _depths.median(cell.values("layers.probe", untrained=True)[..., 1:-1]),
        "constant states": f"{np.isnan(probe).sum()} of {probe.size}",
        "decay over gradient": _depths.median(_depths.decay_ratios(cell)),
    }
    return [
        Statement.over("accuracy", _depths.name(cell), accuracy),
        Statement("output error", _depths.name(cell), error, verdict="as of equal probabilities" * alike),
        *(Statement(quantity, _depths.name(cell), value) for quantity, value in found.items()),
    ]
