"""The sentences of figure `rescaling`, computed from the measurements: they change when those do."""

import numpy as np

from creditscope.auditing.thresholds import PUBLISHED_FLOOR, Thresholds, table
from creditscope.paper.figures._rescaled import BLOCKS, Rescaled
from creditscope.paper.figures._selection import spec_of
from creditscope.paper.figures._words import number, seed_words
from creditscope.plots._quantities import take_log
from creditscope.text import count, drift, power, subscript, with_options


def at_last_tap(text: str, found: Rescaled) -> str:
    """The text with the last tap's number for L."""
    last = len(found.first.facts.taps) - 1
    return text.replace("h_L", subscript("h", last)).replace("g_L", subscript("g", last))


def caption_sizes(found: Rescaled) -> str:
    """A: how sizes follow c, and from where on the published floor is crossed."""
    h, g = (_exponent(found, found.at_top(name)) for name in ("h_norm", "g_norm"))
    under = found.at_top("g_norm") < PUBLISHED_FLOOR
    text = f"From c\u00a0=\u00a0{_factor(found, 0)} to {_factor(found, -1)}, ‖h_L‖ goes with c to the power {h}, "
    text = at_last_tap(f"{text}‖g_L‖ to the power {g}.", found)
    every, some = under.all(0), under.any(0)
    if not some.any():
        return f"{text} The published floor is not crossed."
    if every.any():
        where = f"{_all_seeds(found)} from c\u00a0=\u00a0{_factor(found, int(every.argmax()))} on"
    else:
        where = f"for {int(under.any(1).sum())} of {_seeds(found)}"
    return f"{text} The published floor is crossed {where}."


def _exponent(found: Rescaled, values: np.ndarray) -> str:
    """Mean over seeds of the slope in log–log, first to last c."""
    logs = take_log(values)
    with np.errstate(invalid="ignore"):
        slope = (logs[:, -1] - logs[:, 0]) / np.log10(found.factors[-1] / found.factors[0])
    return number(float(slope.mean()))


def caption_constant(found: Rescaled) -> str:
    """B: the largest change of what should not change."""
    accuracy, g_rel, noise = found.scalar("accuracy"), found.at_top("g_rel"), found.worst("g_noise")
    limit, most, flipped = Thresholds().noise, float(np.max(noise)), found.flipped
    moved = float(np.abs(accuracy - accuracy[:, :1]).max())
    relative = 100 * float(np.abs(g_rel / g_rel[:, :1] - 1).max())
    change = drift(moved).replace(" pp", "\u00a0pp")
    sentences = [f"The same function in other units: accuracy {change}"]
    if not np.isnan(flipped).any():
        sentences[0] += f" (test rows answered differently: {int(flipped.max())} of {found.first.facts.test_rows:,})"
    sentences[0] += f", and g_rel changes by {f'{relative:.1g}' if relative >= 0.001 else 'less than 0.001'}\u00a0%."
    if np.isnan(most):
        sentences.append("Rounding noise is unmeasured.")
    else:
        side = "under" if most < limit else "not under"
        sentences.append(f"Rounding noise is {side} its limit at every c: at most {power(most, digits=1)}.")
    cos = found.worst("cos")
    if found.first.facts.exact_taps and np.isfinite(cos).all():
        off = float(np.abs(cos - 1).max())
        sentences.append(f"cos(a, g) is 1{'' if off < 1e-4 else f' but for {power(off)}'}, as BP's must be.")
    return " ".join(sentences)


def caption_verdicts(found: Rescaled) -> str:
    """C: where the published floor and where our verdict changes its mind."""
    floors = [judgement.floor for judgement in found.judgements]
    words = list(dict.fromkeys(j.word for j in found.judgements))
    n = len(found.seeds)
    if 0 in floors and n in floors:
        first = _factor(found, floors.index(n))
        text = f"The published floor passes the net at c\u00a0=\u00a0{_factor(found, floors.index(0))} and fails it"
        text += f" from c\u00a0=\u00a0{first} on, {_all_seeds(found)}."
    elif len(set(floors)) == 1:
        text = f"The published floor says the same at every c ({floors[0]} of {_seeds(found)} under it)."
    else:
        text = f"The published floor fires for {min(floors)} to {max(floors)} of {_seeds(found)}."
    if len(words) == 1:
        codes = sorted({code for j in found.judgements for code in j.codes})
        said = f" ({', '.join(codes)})" if codes else ""
        unasked = f"{' and '.join(BLOCKS)} not asked: no block was put back"
        return f"{text} Our verdict is the same at every c: {words[0]}{said} ({unasked})."
    changes = [
        f"{j.word} from c\u00a0=\u00a0{_factor(found, i)}"
        for i, j in enumerate(found.judgements)
        if i == 0 or j.word != found.judgements[i - 1].word
    ]
    return f"{text} Our verdict changes: {', '.join(changes)}."


def footer(found: Rescaled) -> str:
    """Task, net, seeds, what was done to the weights."""
    record, spec = found.first, spec_of(found.first)
    several = len(found.seeds) > 1
    bars = "Points are means and bars ± sd of log10 over seeds (ddof 1)" if several else "One seed, so no bars"
    baseline = "" if found.frozen else " Use of depth is not judged: no frozen baseline on record."
    floor = next(row["published"] for row in table() if row["name"] == "floor")
    return (
        f"{spec.task}, {with_options(spec.net, spec.net_options)}, {record.facts.rule.label}, {spec.epochs} epochs, "
        f"{seed_words(found.seeds)}. After training the stem and every block's W2 (weights and biases) are multiplied "
        f"by c. {bars}; measured on {record.last.rows:,} test rows, accuracy on {record.facts.test_rows:,}. Published "
        f"floor: {floor}.{baseline}"
    )


def factor_words(c: float) -> str:
    """1, or a power of ten."""
    return "1" if c == 1 else power(c)


def _factor(found: Rescaled, place: int) -> str:
    return factor_words(float(found.factors[place]))


def _all_seeds(found: Rescaled) -> str:
    return f"for all {_seeds(found)}" if len(found.seeds) > 1 else "for the one seed"


def _seeds(found: Rescaled) -> str:
    return count(len(found.seeds), "seed")
