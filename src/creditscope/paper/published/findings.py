"""Readings that are artefacts, and what must hold if the work is to be called reproduced: answered from the records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from creditscope.auditing.stats import geometric_interval, t_interval
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GROWTH, PUBLISHED_ROWS, TRAJECTORY_ROWS
from creditscope.paper.published.compare import compare
from creditscope.paper.published.numbers import (
    CONDITIONS,
    DATA,
    PUBLISHED,
    Published,
    check_keys,
    choose,
    find_conditions,
    naming,
)
from creditscope.paper.published.readings import Condition, RunFinder, deep, ever, gain, grows, read_each, under_floor
from creditscope.paper.studies.rescaling import DerivedRecord
from creditscope.record import Record
from creditscope.text import amount, count, drift, number

CLAMP = 1e-8
NOT_ON_RECORD = "not on record"
SPREAD = 2.0
"""Standard deviations over draws within which a null is around 0."""
Finding = tuple[list[bool] | bool | None, str] | None
"""Whether a claim holds, or does for each seed, and the numbers; None where nothing is on record."""


def size(value: float) -> str:
    """Two digits and a power of ten."""
    return number(value, ".1e")


def mean_of(values: Sequence[float], form: str = ".4f") -> str:
    """Mean ± half width of its 95 % t interval, and n."""
    found = t_interval(values)
    return found.text(form) if found.low is None else f"{found.text(form)} (n = {found.n})"


def sizes_of(values: Sequence[float]) -> str:
    """Geometric mean, its 95 % interval, and n."""
    if min(values) <= 0:
        return f"{size(min(values))} to {size(max(values))} (n = {len(values)})"
    found = geometric_interval(values)
    bounds = "" if found.low is None or found.high is None else f" [{size(found.low)}, {size(found.high)}]"
    return f"{size(found.mean)}{bounds} (n = {found.n})"


def say_published(published: Published) -> str:
    """As printed, with its sd and number of seeds."""
    if published.kind == "claim":
        return published.said[0]
    said = [f"−{text[1:]}" if text.startswith("-") else text for text in published.said]
    text = (", " if published.kind == "seeds" else "–").join(said)
    text += f" ± {published.sd}" if published.sd else ""
    known = published.n is not None or published.kind == "seeds"
    return f"{text} (m = {published.seeds})" if known else text


def list_artefacts(finder: RunFinder, rescaled: Sequence[Record]) -> dict[str, str]:
    """Readings that come from how a number is computed, not from the net, each shown by runs: title → sentence."""
    found = {
        "Clamped cosines": clamped_cosine(finder),
        "A change of units": change_of_units(rescaled),
        "A tap with exact credit in Γ": exact_tap(finder),
        "Coupled weight decay": weight_decay(finder),
    }
    return {title: f"{text} Shown by `{run}`." if run else "Not on record." for title, (text, run) in found.items()}


def clamp(cos: np.ndarray, g: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines with each norm at least `CLAMP`, as in a common cosine function, and with their product at least that."""
    product = cos * g * a
    return product / (np.maximum(g, CLAMP) * np.maximum(a, CLAMP)), product / np.maximum(g * a, CLAMP)


def clamped_cosine(finder: RunFinder) -> tuple[str, str]:
    """DFA at its end: cosines as they are, and as clamped norms would give them; and the run that shows it."""
    runs = finder.runs(CONDITIONS["dfa"])
    taps = [t for t in runs[0].facts.gamma_taps if t not in runs[0].facts.exact_taps] if runs else []
    measured = [[[getattr(r.last.taps, name)[t] for t in taps] for r in runs] for name in ("cos", "g_norm", "ratio")]
    cos, g, ratio = (np.array(values, dtype=float) for values in measured)
    known = np.isfinite(cos * g * ratio)
    if not known.any():
        return "", ""
    g, a = g / TRAJECTORY_ROWS, ratio * g / TRAJECTORY_ROWS
    by_norm, by_product = clamp(cos, g, a)
    lines = []
    for tap, own, *columns in zip(taps, known.T, g.T, cos.T, by_norm.T, by_product.T, strict=True):
        if own.any():
            size, *means = (float((np.mean if i else np.median)(column[own])) for i, column in enumerate(columns))
            plain, norm, product = number(means[0], "+.4f"), number(means[1], "+.4f"), amount(means[2], 2)
            lines.append(f"tap {tap} (‖g‖ {amount(size, 2)}): {plain} → {norm} and {product}")
    hit = known & ((g < CLAMP) | (a < CLAMP))
    most = max((cos[hit & (by_norm != 0)] / by_norm[hit & (by_norm != 0)]).tolist(), default=1.0)
    what = f"at most {amount(most)} times too small"
    what = what if hit.any() else "not changed by clamped norms: none is below the clamp"
    return (
        f"DFA with a terminal norm, {count(len(runs), 'seed')}, at the end: cosines from medians of ‖a‖ and ‖g‖ of a "
        f"mean over N = {TRAJECTORY_ROWS:,}, as measured → with each norm clamped at {amount(CLAMP)}, and with their "
        f"product clamped: {'; '.join(lines)}. With clamped norms a cosine is {what}."
    ), runs[0].name


def change_of_units(rescaled: Sequence[Record]) -> tuple[str, str]:
    """BP's net with its stream multiplied by c: where the published floor is crossed, and what else changes."""
    by_seed: dict[int, dict[float, Record]] = {}
    for record in rescaled:
        if isinstance(record, DerivedRecord) and record.spec:
            by_seed.setdefault(record.spec.seed, {})[record.condition] = record
    if not by_seed:
        return "", ""
    factors = sorted(set.intersection(*(set(found) for found in by_seed.values())))
    rows = [[found[c] for c in factors] for found in by_seed.values()]
    tops = np.array([[r.last.taps.g_norm[-1] for r in row] for row in rows], dtype=float)
    accuracies = np.array([[r.last.accuracy for r in row] for row in rows], dtype=float)
    crossed = [factors[under.argmax()] if under.any() else None for under in tops < PUBLISHED_FLOOR]
    spread = float(np.abs(accuracies - accuracies[:, :1]).max())
    if all(c is None for c in crossed):
        said = "the published floor is crossed at no c"
    else:
        where = ["never" if c is None else f"c = {amount(c)}" for c in crossed]
        where = f"{where[0]} on in every seed" if len(set(where)) == 1 else f"({', '.join(where)}, by seed) on"
        said = f"the published floor ({amount(PUBLISHED_FLOOR)} per sample) is crossed from {where}"
    return (
        f"BP's trained net with its stream multiplied by c = {amount(factors[0])} to {amount(factors[-1])}, "
        f"{count(len(rows), 'seed')}: {said}, while accuracy {drift(spread)}; ‖g_L‖ goes from "
        f"{amount(tops[0, 0], 2)} to {amount(tops[0, -1], 2)} per sample."
    ), next(iter(by_seed.values()))[factors[0]].name


def exact_tap(finder: RunFinder) -> tuple[str, str]:
    """Block FA: Γ with and without the tap that is handed the gradient."""
    known = [(r, r.last.gamma, r.last.gamma_inexact) for r in finder.runs(CONDITIONS["block_fa"])]
    found = [(r, whole, inexact) for r, whole, inexact in known if whole is not None and inexact is not None]
    if not found:
        return "", ""
    runs, with_it, without = zip(*found, strict=True)
    taps = ", ".join(str(tap) for tap in runs[0].facts.exact_taps)
    return (
        f"Block FA hands tap {taps} the gradient itself: Γ over all block taps is {mean_of(with_it, '+.4f')}, "
        f"over those without exact credit {mean_of(without, '+.4f')}."
    ), runs[0].name


def weight_decay(finder: RunFinder) -> tuple[str, str]:
    """A deep GCN that collapses under a coupled decay, and the same without decay."""
    said, names = [], []
    for label, name in (("decay on every layer", "gcn-10"), ("no decay", "gcn-10-no-decay")):
        known = [(r.name, r.last.accuracy, r.last.weights) for r in finder.runs(CONDITIONS[name])]
        usable = [(run, accuracy, weights) for run, accuracy, weights in known if accuracy is not None and weights]
        if not usable:
            return "", ""
        norms = [v for *_, weights in usable for v in weights.exact_float32]
        zeros = [v for *_, weights in usable for v in weights.exact_all_zero]
        said.append(
            f"With {label}: accuracy {mean_of([accuracy for _, accuracy, _ in usable])}, float32 norm of the gradient "
            f"0 in {sum(v == 0 for v in norms)} of {len(norms)} weights, every element 0 in {sum(map(bool, zeros))}"
        )
        names.append(usable[0][0])
    return f"BP on Cora, GCN, L = 10. {'. '.join(said)}.", names[0]


@dataclass(frozen=True)
class Claim:
    """One claim; `holds` is None where nothing is on record."""

    text: str
    holds: bool | None
    numbers: str
    seeds: tuple[int, int] | None = None
    """Those that bear it out, of all, if it is asked of each."""

    @property
    def answer(self) -> str:
        """In words; the number of seeds where it is neither all nor none."""
        if self.seeds and 0 < self.seeds[0] < self.seeds[1]:
            return f"in {self.seeds[0]} of {self.seeds[1]} seeds"
        return {True: "yes", False: "**no**", None: "–"}[self.holds]


def list_claims(finder: RunFinder) -> list[Claim]:
    """All of them, whatever the answer is."""
    asked = DATA["must_hold"]
    return [*(is_close(id, finder) for id in asked["close"]), *(ask(entry, finder) for entry in asked["claims"])]


def ask(entry: Mapping[str, Any], finder: RunFinder) -> Claim:
    """A claim of the file."""
    with naming(f"Claim {entry.get('text')!r}"):
        check_keys(entry, ("text", "condition", "check"))
        name, *arguments = entry["check"].split()
        check = choose("check", name, CHECKS)
        asked = (finder, *find_conditions(entry["condition"]), *map(float, arguments))
        signature(check).bind(*asked)
    holds, numbers = check(*asked) or (None, NOT_ON_RECORD)
    if isinstance(holds, list):
        return Claim(entry["text"], all(holds), numbers, (sum(holds), len(holds)))
    return Claim(entry["text"], holds, numbers)


def is_close(id: str, finder: RunFinder) -> Claim:
    """A published accuracy that ours is within 1.5 pp of."""
    with naming(f"Claim that {id!r} is close"):
        published = choose("published number", id, {p.id: p for p in PUBLISHED})
    result, text = compare(published, published.reading(finder)), f"{published.quantity} within 1.5 pp of published"
    text = f"{text} ({say_published(published)}; {published.part.split(':')[0]})"
    return Claim(text, result.close, mean_of(result.values.numbers) if result.n else NOT_ON_RECORD)


def floor(finder: RunFinder, condition: Condition, *, crossed: bool) -> Finding:
    """Under the floor at some snapshot, at N of the audit and at N of the trajectories; a seed must say both."""
    runs = finder.runs(condition)
    hits = {rows: [ever(under_floor(rows), r) for r in runs] for rows in (PUBLISHED_ROWS, TRAJECTORY_ROWS)}
    tops = [top for r in runs if (top := r.last.head_taps.g_norm[-1]) is not None]
    said = ", ".join(f"{sum(hit)} of {len(runs)} seeds at N = {rows:,}" for rows, hit in hits.items())
    size = f"; ‖g_L‖ per sample at the end {sizes_of(tops)}" if tops else ""
    borne = [set(answers) == {crossed} for answers in zip(*hits.values(), strict=True)]
    return (borne, f"crossed by {said}{size}") if runs else None


def stream(finder: RunFinder, condition: Condition, *, explodes: bool) -> Finding:
    """A block passes the published growth limit; or else ‖h_L‖ is only larger at the end than before training."""
    runs = finder.runs(condition)
    hits = [ever(grows, r) for r in runs]
    ends = [(r.snapshots[0].head_taps.h_norm[-1], r.last.head_taps.h_norm[-1]) for r in runs]
    factors = [last / first for first, last in ends if first and last]
    grown = f"; ‖h_L‖ at the end over ‖h_L‖ before training {sizes_of(factors)}" if factors else ""
    numbers = f"a block's growth passes {PUBLISHED_GROWTH:g} in {sum(hits)} of {len(runs)} seeds{grown}"
    larger = [first is not None and last is not None and last > first for first, last in ends]
    return (hits if explodes else larger, numbers) if runs else None


def is_null(finder: RunFinder, condition: Condition) -> Finding:
    """Of fresh feedback: 0 lies within two sd over draws and seeds."""
    means, draws = (read_each(condition, deep(name))(finder).numbers for name in ("fresh_cos", "fresh_sd"))
    if not means or not draws:
        return None
    mean, sd = sum(means) / len(means), (sum(d * d for d in draws) / len(draws)) ** 0.5
    return abs(mean) <= SPREAD * sd, f"{mean_of(means, '+.4f')}; sd over draws {sd:.4f} at a tap"


def is_control(finder: RunFinder, condition: Condition, least: float) -> Finding:
    """ρ of the gradient itself."""
    found = read_each(condition, deep("rho_exact"))(finder).numbers
    return ([rho >= least for rho in found], f"{mean_of(found)}, smallest {min(found):.4f}") if found else None


def lifts(finder: RunFinder, condition: Condition, baseline: Condition) -> Finding:
    """Accuracy minus that of the baseline, paired by seed, is above 0."""
    gains = gain(condition, baseline)(finder).numbers
    if not gains:
        return None
    low = t_interval(gains).low
    return None if low is None else low > 0, f"in pp {mean_of([100 * g for g in gains], '+.2f')}"


CHECKS: dict[str, Callable[..., Finding]] = {
    "crosses_floor": partial(floor, crossed=True),
    "stays_above_floor": partial(floor, crossed=False),
    "explodes": partial(stream, explodes=True),
    "grows": partial(stream, explodes=False),
    "null": is_null,
    "control": is_control,
    "lifts": lifts,
}
"""By the names that `published.toml` has for them."""
