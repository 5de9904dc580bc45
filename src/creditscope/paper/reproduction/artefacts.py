"""Readings that come from how a number is computed, not from the net: each shown by runs on record."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from creditscope.auditing.thresholds import PUBLISHED_FLOOR, TRAJECTORY_ROWS
from creditscope.paper.reproduction._conditions import CONDITIONS
from creditscope.paper.reproduction._shelf import Shelf
from creditscope.paper.reproduction._words import mean_of, name_of
from creditscope.paper.studies import DerivedRecord
from creditscope.record import Record
from creditscope.text import amount, count, drift, number

CLAMP = 1e-8
NOT_ON_RECORD = "Not on record."


@dataclass(frozen=True)
class Clamped:
    """A tap of one run: median norms as of a mean over `TRAJECTORY_ROWS`, the cosine, and what clamping makes of it."""

    tap: int
    g: float
    a: float
    cos: float

    @property
    def by_norm(self) -> float:
        """Each norm at least `CLAMP`, as in a common cosine function."""
        return self.cos * self.g * self.a / (max(self.g, CLAMP) * max(self.a, CLAMP))

    @property
    def by_product(self) -> float:
        """The product of the norms at least `CLAMP`."""
        return self.cos * self.g * self.a / max(self.g * self.a, CLAMP)


def clamp_taps(record: Record) -> list[Clamped]:
    """Every block tap without exact credit at the end."""
    taps, facts = record.last.taps, record.facts
    found = []
    for tap in facts.gamma_taps:
        cos, g, ratio = taps.cos[tap], taps.g_norm[tap], taps.ratio[tap]
        if tap not in facts.exact_taps and cos is not None and g is not None and ratio is not None:
            found.append(Clamped(tap, g / TRAJECTORY_ROWS, ratio * g / TRAJECTORY_ROWS, cos))
    return found


def clamped_cosine(shelf: Shelf) -> str:
    """DFA at its end: cosines as they are, and as clamped norms would give them."""
    runs = shelf.find(CONDITIONS["dfa"]).runs
    by_tap: dict[int, list[Clamped]] = {}
    for record in runs.values():
        for one in clamp_taps(record):
            by_tap.setdefault(one.tap, []).append(one)
    if not by_tap:
        return NOT_ON_RECORD
    lines = []
    for tap, found in by_tap.items():
        cos, norm, product = (float(np.mean([getattr(c, n) for c in found])) for n in ("cos", "by_norm", "by_product"))
        g = float(np.median([c.g for c in found]))
        lines.append(
            f"tap {tap} (‖g‖ {amount(g, 2)}): {number(cos, '+.4f')} → {number(norm, '+.4f')} and {amount(product, 2)}"
        )
    hit = [c for found in by_tap.values() for c in found if c.g < CLAMP or c.a < CLAMP]
    most = max((c.cos / c.by_norm for c in hit if c.by_norm), default=1.0)
    what = f"at most {amount(most)} times too small" if hit else "not changed by clamped norms: none is below the clamp"
    return (
        f"DFA with a terminal norm, {count(len(runs), 'seed')}, at the end: cosines from medians of ‖a‖ and ‖g‖ of a "
        f"mean over N = {TRAJECTORY_ROWS:,}, as measured → with each norm clamped at {amount(CLAMP)}, and with their "
        f"product clamped: {'; '.join(lines)}. With clamped norms a cosine is {what}. "
        f"Shown by {name_of(next(iter(runs.values())))}."
    )


def change_of_units(derived: Sequence[Record]) -> str:
    """BP's net with its stream multiplied by c: where the published floor is crossed, and what else changes."""
    by_seed: dict[int, dict[float, Record]] = {}
    for record in derived:
        if isinstance(record, DerivedRecord) and record.spec:
            by_seed.setdefault(record.spec.seed, {})[record.condition] = record
    if not by_seed:
        return NOT_ON_RECORD
    factors = sorted(set.intersection(*(set(found) for found in by_seed.values())))
    rows = [[found[c] for c in factors] for found in by_seed.values()]
    tops = np.array([[r.last.taps.g_norm[-1] for r in row] for row in rows], dtype=float)
    accuracies = np.array([[r.last.accuracy for r in row] for row in rows], dtype=float)
    under = tops < PUBLISHED_FLOOR
    crossed = [factors[line.argmax()] if line.any() else None for line in under]
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
        f"{amount(tops[0, 0], 2)} to {amount(tops[0, -1], 2)} per sample. Shown by {name_of(rows[0][0])}."
    )


def exact_tap(shelf: Shelf) -> str:
    """Block FA: Γ with and without the tap that is handed the gradient."""
    runs = [
        r for r in shelf.find(CONDITIONS["block_fa"]).runs.values() if None not in (r.last.gamma, r.last.gamma_inexact)
    ]
    if not runs:
        return NOT_ON_RECORD
    with_it, without = ([getattr(r.last, n) or 0.0 for r in runs] for n in ("gamma", "gamma_inexact"))
    taps = ", ".join(str(tap) for tap in runs[0].facts.exact_taps)
    return (
        f"Block FA hands tap {taps} the gradient itself: Γ over all block taps is {mean_of(with_it, '+.4f')}, "
        f"over those without exact credit {mean_of(without, '+.4f')}. Shown by {name_of(runs[0])}."
    )


def weight_decay(shelf: Shelf) -> str:
    """A deep GCN that collapses under a coupled decay, and the same without decay."""
    said, first = [], ""
    for label, name in (("decay on every layer", "gcn-10"), ("no decay", "gcn-10-no-decay")):
        runs = list(shelf.find(CONDITIONS[name]).runs.values())
        known = [(r, r.last.accuracy, r.last.weights) for r in runs]
        usable = [(r, accuracy, weights) for r, accuracy, weights in known if accuracy is not None and weights]
        if not usable:
            return NOT_ON_RECORD
        first = first or name_of(usable[0][0])
        norms = [v for _, _, weights in usable for v in weights.exact_float32]
        zeros = [v for _, _, weights in usable for v in weights.exact_all_zero]
        said.append(
            f"{label}: accuracy {mean_of([accuracy for _, accuracy, _ in usable])}, float32 norm of the gradient 0 in "
            f"{sum(v == 0 for v in norms)} of {len(norms)} weights, every element 0 in {sum(map(bool, zeros))}"
        )
    return f"BP on Cora, GCN, L = 10. {'. With '.join(['With ' + said[0], said[1]])}. Shown by {first}."


def list_artefacts(shelf: Shelf, derived: Sequence[Record]) -> dict[str, str]:
    """Title → sentence."""
    return {
        "Clamped cosines": clamped_cosine(shelf),
        "A change of units": change_of_units(derived),
        "A tap with exact credit in Γ": exact_tap(shelf),
        "Coupled weight decay": weight_decay(shelf),
    }
