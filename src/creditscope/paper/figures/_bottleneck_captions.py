"""The sentences of figures `bp_bottleneck` and `forward_magnitude`, computed from the records: they follow the data."""

import math

import numpy as np

from creditscope.paper.figures._bottleneck_table import Row, table_rows
from creditscope.paper.figures._depths import DepthGroup, Depths
from creditscope.paper.figures._measures import decay_ratio
from creditscope.paper.figures._stats import median, quartiles
from creditscope.paper.figures._words import number
from creditscope.text import join_words, power, subscript, with_options


def title_gradients(found: Depths) -> str:
    """A: how many weight gradients are zero, by either count."""
    rows = table_rows(found)
    zero, total = (sum(row.all_zero[i] for row in rows) for i in range(2))
    norms = sum(row.zero_norms[0] for row in rows)
    return f"Zero weight gradients: {zero} of {total}, by float32 norm {norms}"


def title_probes(found: Depths) -> str:
    """B: where the labels can be read off."""
    values = [row.probe for row in table_rows(found) if not math.isnan(row.probe)]
    if not values:
        return "Linear probe of each layer"
    low, high = number(min(values)), number(max(values))
    spread = low if low == high else f"{low} to {high}"
    return f"Linear probe: median {spread} in the middle"


def caption_gradients(found: Depths) -> str:
    """A: by depth, the size of gradients, and which zeros are real."""
    return " ".join(_gradients(group, row) for group, row in _pairs(found))


def _gradients(group: DepthGroup, row: Row) -> str:
    (zero, looked_at), (norms, _) = row.all_zero, row.zero_norms
    if not looked_at:
        return f"{_name(group)}: weight gradients are not measured."
    if zero == looked_at:
        return f"{_name(group)}: every element of every weight gradient is exactly 0."
    medians = quartiles(group.weights("exact_norm"))[1]
    medians = medians[~np.isnan(medians)]
    said = f"{_name(group)}: "
    said += f"medians from {size(medians.min())} to {size(medians.max())}" if len(medians) else "norms not measured"
    if norms == zero == 0:
        return f"{said}; none is zero."
    if norms > zero == 0:
        return f"{said}; {_share(row.zero_norms)} underflow as float32 norms, though none is all zero."
    return f"{said}; {_share(row.all_zero)} are all zero, and {_share(row.zero_norms)} have a float32 norm of 0."


def caption_probes(found: Depths) -> str:
    """B: what probes read off the middle layers, beside the accuracy of the net and of probes on untrained nets."""
    sentences = []
    for group, row in _pairs(found):
        untrained = median(group.layers("probe", untrained=True)[:, 1:-1].ravel())
        sentences.append(
            f"{_name(group)}: {number(row.probe)} over the middle layers ({number(untrained)} before training); the "
            f"net itself {number(row.accuracy)}."
        )
    constant = {group.label: int(np.isnan(group.layers("probe")).sum()) for group in found.drawn}
    gaps = [f"{count} at {label.replace(' ', chr(0xA0))}" for label, count in constant.items() if count]
    if gaps:
        sentences.append(f"Constant states, which have no probe: {', '.join(gaps)}.")
    return " ".join(sentences)


def caption_table(found: Depths) -> str:
    """C: the output error of a net that answers alike for every class, who is there, and what the decay does."""
    sentences = []
    uniform = uniform_error(found)
    alike = [group for group, row in _pairs(found) if abs(row.output_error / uniform - 1) < 0.01]
    formula = f"√({found.facts.classes - 1}/{found.facts.classes})/√{found.first.last.rows_covered}"
    said = f"A net that gives every class the same probability has an output error of {formula} = "
    said += number(uniform, digits=4)
    names = join_words([_name(group) for group in alike])
    verb = "is" if len(alike) == 1 else "are"
    sentences.append(f"{said}: {names} {verb} there." if alike else f"{said}; no depth is there.")
    sentences.append(_decay(found))
    chance, constant = found.facts.chance, found.facts.best_constant
    if chance is not None and constant is not None:
        sentences.append(f"Chance is {100 * chance:.1f}\u00a0%, the commonest class {100 * constant:.1f}\u00a0%.")
    return " ".join(filter(None, sentences))


def uniform_error(found: Depths) -> float:
    """‖∂L/∂Z‖_F of a uniform softmax: √((C − 1)/C)/√n for n labelled rows."""
    classes = found.facts.classes
    return math.sqrt((classes - 1) / classes) / math.sqrt(found.first.last.rows_covered)


def _decay(found: Depths) -> str:
    spec = found.spec
    if not spec.weight_decay:
        return "No weight decays."
    which = "every weight" if spec.decay_on == "all" else "the first layer's weights"
    if spec.optimiser != "adam":
        return f"Weight decay of {which}: {spec.weight_decay:g} ({spec.optimiser})."
    ratios = [f"{size(decay_ratio(group.records))} at {_name(group)}" for group in found.drawn]
    return (
        f"Adam adds the decay ({spec.weight_decay:g}, {which}) to the gradient before it normalises the sum; before "
        f"the first step the ratio of decay term to loss gradient is {', '.join(ratios)} (median over layers and "
        "seeds)."
    )


def size(value: float) -> str:
    """A positive number in as few characters as say it.

    >>> size(0.0123), size(46.4), size(853.0), size(3.2e-25), size(0.0)
    ('0.012', '46', '853', '3×10⁻²⁵', '0')
    """
    if not 1e-3 <= value < 1000:
        return power(value)
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def caption_magnitude(group: DepthGroup) -> str:
    """By how much the states shrink or grow, and how much of them differs between nodes."""
    sizes, spread = (quartiles(group.layers(name))[1] for name in ("rms", "dispersion"))
    said = [_course(sizes)]
    gaps = [subscript("H", int(i)) for i in np.flatnonzero(np.isnan(sizes))]
    if gaps:
        said.append(f"M is not measured at {', '.join(gaps)}.")
    compared = [d / m for m, d in zip(sizes[1:], spread[1:], strict=True) if m > 0 and not np.isnan(d)]
    if compared:
        low, high = number(min(compared)), number(max(compared))
        said.append(f"After H₀, {low} to {high} of what is there differs between nodes (D/M).")
    return " ".join(filter(None, said))


def _course(sizes: np.ndarray) -> str:
    """From the first state measured to the last, or to the first that is exactly 0."""
    known, zeros = np.flatnonzero(~np.isnan(sizes)), np.flatnonzero(sizes == 0)
    if not len(known):
        return ""
    first, last = int(known[0]), int(zeros[0] if len(zeros) else known[-1])
    if first == last:
        return f"M is {'exactly 0' if len(zeros) else size(sizes[first])} at {subscript('H', first)}."
    word = "falls" if len(zeros) else "grows" if sizes[last] >= sizes[first] else "shrinks"
    end = "exactly 0" if len(zeros) else size(sizes[last])
    return f"M {word} from {size(sizes[first])} at {subscript('H', first)} to {end} at {subscript('H', last)}."


def footer(found: Depths, *, sizes_only: bool = False) -> str:
    """Task, net, recipe, seeds, what the band is; unless only states are drawn, loss and probes too."""
    spec = found.spec
    options = {name: value for name, value in spec.net_options.items() if name != "depth"}
    decay = f"weight decay {spec.weight_decay:g} on {'all layers' if spec.decay_on == 'all' else 'the first layer'}"
    one = all(len(group.records) == 1 for group in found.drawn)
    band = "One seed, so no band" if one else "Lines are medians and bands quartiles over seeds"
    measured = (
        f"Loss: mean cross-entropy over {found.first.last.rows_covered} labelled nodes, without the decay term; "
        f"accuracy and probes on {found.facts.test_rows} test nodes. "
    )
    return (
        f"{spec.task}, {with_options(spec.net, options)}, {found.facts.rule.label}, {spec.optimiser} lr {spec.lr:g} "
        f"({spec.schedule}), {decay}, {spec.precision}, after epoch {spec.epochs}; {found.counts}. {band}. "
        f"{'' if sizes_only else measured}H₀ is the input, the last state the output."
    )


def _pairs(found: Depths) -> list[tuple[DepthGroup, Row]]:
    return [pair for pair in zip(found.groups, table_rows(found), strict=True) if pair[0].records]


def _name(group: DepthGroup) -> str:
    return group.label.replace(" ", "\u00a0")


def _share(counted: tuple[int, int]) -> str:
    count, total = counted
    return f"all {total}" if count == total else f"{count} of {total}"
