"""Deep GCNs by backprop: the gradient each weight gets, and what a linear probe reads off each state.

Every number comes from the first and last snapshots of the records.
"""

import math
from collections.abc import Sequence
from statistics import stdev

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.paper.figures import _depths, register_figure
from creditscope.paper.figures._layout import draw_key, grey_key, head, make_page
from creditscope.plots import Caption, Statement
from creditscope.plots._style import GREY, styled
from creditscope.record import Record
from creditscope.record.pick import Cell, Picked

DIFFERS = 0.01
"""Relative difference from which on a float32 norm is drawn beside the true one."""
ALIKE = 0.01
"""Relative difference up to which an output error is that of equal probabilities."""
TITLE = "Deep GCNs by backprop: the gradient of each weight, and a linear probe of each state."
READING = (
    "Lines are medians and bands quartiles over seeds, after training. A: Frobenius norms of the gradient of the loss "
    "without its decay term; 0: every element is 0, or, hollow, the norm computed in float32 is. B: accuracy on test "
    "nodes; H₀ is the input, the last state the output; a constant state has no probe. The output error is the median "
    "‖∂L/∂Z‖ of the logits, beside that of a net that gives every class the same probability; probes are medians, too. "
    "Decay over gradient: weight decay times ‖W‖ by ‖∂L/∂W‖ before the first step, median over layers and seeds, "
    "unless the optimiser keeps the two apart."
)


@register_figure("bp_bottleneck")
def plot_bp_bottleneck(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `bp_bottleneck`: one net at several depths, many seeds each."""
    found = _depths.pick_depths(records)
    with styled():
        fig, ((gradients, probes),) = make_page(1, 2, height=2.8)
        draw_gradients(gradients, found)
        draw_probes(probes, found)
        keys, drawn = _depths.depth_keys(found), {line.get_gid() or "" for ax in fig.axes for line in ax.lines}
        if any(gid.endswith("float32") for gid in drawn):
            keys.append(grey_key("norm in float32, where it differs", ls="", marker="s", mfc="white"))
        if "chance" in drawn:
            keys.append(grey_key("chance", ls=":"))
        draw_key(fig, keys, columns=len(keys))
    return fig


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
            look = {**_depths.look_of(found, cell), "ls": "", "mfc": "white", "ms": 3.2, "zorder": 5}
            ax.plot(np.maximum(own, floor), gid=f"{_depths.name(cell)} float32", **look)
    head(ax, "A", "Gradient of each weight")
    ax.set(xlabel="layer $l$", ylabel=r"$\|\partial L/\partial W_l\|_F$")


def draw_probes(ax: Axes, found: Picked) -> None:
    """B: probe accuracy by state, and chance."""
    _depths.draw_by_layer(ax, found, lambda cell: cell.values("layers.probe"))
    if (chance := found.first.facts.chance) is not None:
        ax.axhline(chance, color=GREY, lw=0.8, ls=":", zorder=1, gid="chance")
    head(ax, "B", "Linear probe of each state")
    ax.set(ylim=(0, ax.get_ylim()[1]), xlabel="state $H_l$", ylabel="probe accuracy")


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
        "weight gradients with a float32 norm of 0": f"{(plain == 0).sum()} of {(~np.isnan(plain)).sum()}",
        "weight gradients with every element 0": f"{(all_zero > 0).sum()} of {(~np.isnan(all_zero)).sum()}",
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
