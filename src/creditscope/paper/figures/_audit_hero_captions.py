"""The sentences of figure F1, computed from the records: they change when the data do."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from creditscope.auditing.checks import Outcome
from creditscope.auditing.checks.cs010_at_chance import AtChance
from creditscope.auditing.methods import Moment
from creditscope.auditing.stats import t_interval
from creditscope.auditing.tap_credit import TapAnswer, judge_taps
from creditscope.auditing.thresholds import Thresholds
from creditscope.paper.figures._selection import Group, Selection, spec_of
from creditscope.paper.figures._words import number, seed_words, with_spread
from creditscope.plots._quantities import mean_sd
from creditscope.text import name_options, power, subscript

REFERENCE = "bp"
ORDER = 0.95
"""Orders of magnitude that are called a difference: one, as it is rounded."""


def _mean(values: np.ndarray) -> float:
    return float(mean_sd(values)[0])


def _name_taps(taps: Sequence[int]) -> str:
    """h₁, h₂ or, from three in a row, h₁–h₃."""
    if len(taps) > 2 and list(taps) == list(range(taps[0], taps[-1] + 1)):
        return f"{subscript('h', taps[0])}–{subscript('h', taps[-1])}"
    return ", ".join(subscript("h", tap) for tap in taps)


def chance_level(hero: Selection) -> float | None:
    """The accuracy from which CS010 finds a run of this setting above chance; None where it does not judge.

    It is the best constant guess and what the test rows leave uncertain.
    """
    moment, low, high = Moment.of(hero.drawn[0].records[0]), 0.0, 1.0
    if not _clears(moment, high):
        return None
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if _clears(moment, middle) else (middle, high)
    return high


def _clears(moment: Moment, accuracy: float) -> bool:
    supposed = replace(moment, snapshot=replace(moment.snapshot, accuracy=accuracy))
    return AtChance().judge(supposed, Thresholds()).outcome == Outcome.PASSED


def _above_chance(group: Group) -> bool:
    """What the audit would conclude of one run with the mean accuracy: so the point lies above the line drawn."""
    return _clears(Moment.of(group.records[0]), float(group.per_run("accuracy").mean()))


def caption_pair(hero: Selection) -> str:
    """A: for how many rules Γ > 0 and accuracy is above chance, as CS010 judges it."""
    constant, level = hero.facts.best_constant, chance_level(hero)
    if constant is None or level is None:
        why = "the targets are no classes, or random, or the test rows are too few"
        return f"Chance is not judged here: {why}. So the pair cannot be read."
    pairs = [(g, _mean(g.per_run("gamma")), _mean(g.per_run("accuracy"))) for g in hero.drawn]
    pairs = [pair for pair in pairs if not np.isnan(pair[1:]).any()]
    others = [(g.style.label, x, y) for g, x, y in pairs if not (x > 0 and _above_chance(g))]
    count, total = len(pairs) - len(others), len(pairs)
    if not total:
        return "Γ or accuracy is unmeasured for every rule, so the pair cannot be read."
    how_many = {1: "the one rule", 2: "both rules"}.get(total, f"all {total} rules")
    how_many = f"{count} of {total} rules" if others else how_many
    rows = hero.facts.test_rows or hero.drawn[0].records[0].last.rows_covered
    text = (
        f"Accuracy and Γ look like learning for {how_many} (Γ\u00a0>\u00a00; accuracy over {number(level)}: the best "
        f"constant guess, {number(constant)}, plus what {rows:,} test rows leave open, CS010)"
    )
    if not others:
        return f"{text}: the pair alone raises no doubt."
    named = ", ".join(f"{label} (Γ\u00a0=\u00a0{number(x)}, accuracy\u00a0{number(y)})" for label, x, y in others)
    return f"{text}; not for {named}."


def caption_cosine(hero: Selection) -> str:
    """B: what CS005 answers of every tap: its mean cosine over seeds against the smallest alignment of interest."""
    asked = [g for g in hero.drawn if g.facts.inexact_taps and g.facts.rule.approximates == "gradient"]
    if not asked:
        return "No tap is judged: all are handed the exact gradient, or their rule does not approximate it."
    limit = Thresholds().alignment
    delta, told = f"δ\u00a0=\u00a0{limit:g}", [(group, _judge(group)) for group in asked]
    known = [(group, answers) for group, answers in told if not isinstance(answers, str)]
    under = [(g, taps) for g, answers in known if (taps := _block_taps(g, answers, "below"))]
    hidden = "; ".join(_say_under(g, taps) for g, taps in under if _mean(g.per_run("gamma")) >= limit)
    plain = "; ".join(_say_under(g, taps) for g, taps in under if not _mean(g.per_run("gamma")) >= limit)
    unclear = [(g, taps) for g, answers in known if (taps := _block_taps(g, answers, "open"))]
    stems = ", ".join(g.style.label for g, answers in known if _stem_is_under(g, answers))
    told_all = known and len(known) == len(told) and not under and not unclear
    sentences = [
        f"Γ hides layers whose mean cosine is under {delta}: {hidden}." if hidden else "",
        f"These layers, and Γ, are under {delta}: {plain}." if plain else "",
        f"Neither under nor above {delta}: {'; '.join(_say_taps(g, taps) for g, taps in unclear)}." if unclear else "",
        f"No block is hidden: without exact credit the mean cosine is at least {delta}." if told_all else "",
        f"The stem h₀, not in Γ, is under {delta} under {stems}." if stems else "",
        *(f"{group.style.label} is not judged: {why}." for group, why in told if isinstance(why, str)),
        "Bounds are one-sided, 95\u00a0% (CS005)." if known and len(hero.seeds) > 1 else "",
    ]
    return " ".join(filter(None, sentences))


def _judge(group: Group) -> list[TapAnswer] | str:
    moments = [Moment.of(record) for record in group.records]
    return judge_taps(moments, group.facts.inexact_taps, Thresholds())


def _block_taps(group: Group, answers: Sequence[TapAnswer], answer: str) -> list[TapAnswer]:
    return [found for found in answers if found.answer == answer and found.tap in group.facts.gamma_taps]


def _stem_is_under(group: Group, answers: Sequence[TapAnswer]) -> bool:
    return any(found.answer == "below" and found.tap not in group.facts.gamma_taps for found in answers)


def _say_taps(group: Group, answers: Sequence[TapAnswer]) -> str:
    return f"{_name_taps([found.tap for found in answers])} under {group.style.label}"


def _say_under(group: Group, answers: Sequence[TapAnswer]) -> str:
    """Which taps, how large their cosine can be, and Γ."""
    most = max(found.under.high for found in answers)
    gamma = number(_mean(group.per_run("gamma")))
    return f"{_say_taps(group, answers)} (at most {number(most, digits=3)}; Γ\u00a0=\u00a0{gamma})"


def caption_gradient(hero: Selection) -> str:
    """C: orders of magnitude between ‖g_L‖ under each rule and under BP, and whether g is resolved."""
    last = {g.rule: g.log_gradient()[:, -1] for g in hero.drawn}
    orders = {
        g.style.label: last[g.rule] - last[REFERENCE] for g in hero.drawn if REFERENCE in last and g.rule != REFERENCE
    }
    if orders:
        compared = ", ".join(_compare(found, label) for label, found in orders.items())
        tap, spread = subscript("h", len(hero.facts.taps) - 1), " (mean ± sd)" if len(hero.seeds) > 1 else ""
        text = f"Reference gradient at {tap} against BP, in orders of magnitude{spread}: {compared}."
    elif REFERENCE in last:
        text = "Only BP is on record: there is nothing to compare with it."
    else:
        text = "BP is not on record to compare with."
    shrunk = [label for label, found in orders.items() if _mean(found) < 0 and _is_apart(found)]
    return f"{text} {_say_noise(hero, shrunk=shrunk)}"


def _is_apart(orders: np.ndarray) -> bool:
    """Whether gradients differ by an order of magnitude or more, over seeds whose 95 % t interval leaves out 0."""
    found = t_interval(orders[~np.isnan(orders)].tolist()) if not np.isnan(orders).all() else None
    if found is None or found.low is None or found.high is None:
        return False
    return abs(found.mean) >= ORDER and not found.low <= 0 <= found.high


def _compare(orders: np.ndarray, label: str) -> str:
    mean, sd = map(float, mean_sd(orders))
    if np.isnan(mean):
        return f"unmeasured under {label}"
    if len(orders) > 1 and not _is_apart(orders):
        return f"like BP's under {label} ({with_spread(mean, sd)})"
    return f"{with_spread(abs(mean), sd)} {'smaller' if mean < 0 else 'larger'} under {label}"


def _say_noise(hero: Selection, *, shrunk: Sequence[str]) -> str:
    """Whether float64 confirms the gradients: the largest g_noise over taps and seeds of each rule."""
    limit = Thresholds().noise
    noise = {g.style.label: g.per_tap("g_noise") for g in hero.drawn}
    worst = {label: float(np.nanmax(values)) for label, values in noise.items() if not np.isnan(values).all()}
    absent = ", ".join(label for label in noise if label not in worst)
    unmeasured = f"Rounding noise is unmeasured for {absent}." if absent else ""
    if not worst:
        return unmeasured
    poor = ", ".join(f"{label} ({value:.2g})" for label, value in worst.items() if not value < limit)
    if poor:
        text = f"Unresolved: relative rounding noise at the worst tap is not under {limit:g} for {poor}."
    else:
        small = [label for label in worst if label in shrunk]
        resolved = "Small, but not rounding noise" if small else "Resolved, not rounding noise"
        most = [f"{power(worst[label], digits=1)} under {label}" for label in small or worst]
        text = f"{resolved}: relative noise at the worst tap is at most {', '.join(most)}."
    return f"{text} {unmeasured}".strip()


def footer(hero: Selection) -> str:
    """Task, net, seeds, what the bars are, options of rules."""
    first, facts, n = hero.drawn[0].records[0], hero.facts, len(hero.seeds)
    spec = spec_of(first)
    shape = {"width": facts.tap_shapes[-1][-1], "depth": len(facts.gamma_taps)}
    options = name_options({**shape, **spec.net_options})
    bars = "Points are means and bars ± sd over seeds (ddof 1; in C of log10)" if n > 1 else "One seed, so no bars"
    parts = [
        f"{spec.task}, {spec.net} ({options}), {spec.epochs} epochs, {seed_words(hero.seeds)}",
        f"{bars}; cosine and ‖g‖ on {first.last.rows} test rows",
    ]
    for group in hero.drawn:
        norm = spec_of(group.records[0]).credit_norm
        said = ", ".join(filter(None, [group.facts.rule.variant, "" if norm == "none" else f"credit norm {norm}"]))
        parts += [f"{group.style.label}: {said}"] if said else []
    return ". ".join(parts) + "."
