"""What the league says, each sentence with the interval that could have refuted it, and the check that asks it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from creditscope.auditing.depth import use_of_depth
from creditscope.auditing.stats import Interval, t_interval
from creditscope.auditing.strip import short_number
from creditscope.paper.predictions.outcomes import Held
from creditscope.paper.standings import Standing, deep_cosine
from creditscope.record import Facts, Snapshot
from creditscope.record.table import largest_growth
from creditscope.text import DASH


@dataclass(frozen=True)
class Claim:
    """A quantity of a row whose whole interval lies within bounds."""

    block: str
    row: str
    quantity: str
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Headline:
    """A sentence, and all that must hold for it."""

    text: str
    claims: tuple[Claim, ...]


LEARNED = ("wm", "kp", "dni")
HEADLINES = (
    Headline(
        "A cosine near 1 is not enough: nudged at β = .1, EP is aligned all but perfectly and loses a third of BP's "
        "gain and more.",
        (Claim("A", "ep, beta 0.1", "cos", low=0.98), Claim("A", "ep, beta 0.1", "share", high=0.67)),
    ),
    Headline(
        "A cosine of .07 can be enough: one forward gradient takes a quarter of BP's gain and more, without a bias.",
        (Claim("A", "forward_gradient", "cos", high=0.1), Claim("A", "forward_gradient", "share", low=0.25)),
    ),
    Headline(
        "The better aligned of two can be the worse one: nudged to both sides at β = .5, EP has a cosine near 1, a "
        "block that overwrites the stream, and ten points and more less accuracy than EP nudged to one side.",
        (
            Claim("nudging", "ep, beta 0.5", "cos", low=0.98),
            Claim("nudging", "ep, beta 0.5", "growth", low=10.0),
            Claim("nudging", "ep, beta 0.5", "accuracy", high=0.5),
            Claim("nudging", "ep, beta 0.5, centred False", "cos", high=0.97),
            Claim("nudging", "ep, beta 0.5, centred False", "growth", high=10.0),
            Claim("nudging", "ep, beta 0.5, centred False", "accuracy", low=0.6),
        ),
    ),
    Headline(
        "What learns its feedback layer by layer can equal backprop on the small task.",
        tuple(Claim("A", row, "share", low=0.95) for row in LEARNED),
    ),
    Headline(
        "Not so on CIFAR-10: there DNI takes hardly any of the gain.",
        (Claim("B", "wm", "share", low=0.85), Claim("B", "dni", "share", high=0.3)),
    ),
    Headline(
        "Nor at twelve blocks in place of four: WM and KP keep nine tenths of the gain and more, DNI's blocks do "
        "worse than frozen ones.",
        (
            Claim("L12", "wm", "share", low=0.9),
            Claim("L12", "kp", "share", low=0.9),
            Claim("L12", "dni", "share", high=0.0),
        ),
    ),
    Headline(
        "FA loses its share with depth: it takes three fifths of the gain and more at two blocks, a fifth at most at "
        "twelve.",
        (Claim("L2", "fa", "share", low=0.6), Claim("L12", "fa", "share", high=0.2)),
    ),
    Headline(
        "DFA's blocks would have done better frozen, on both tasks.",
        (Claim("A", "dfa", "share", high=0.0), Claim("B", "dfa", "share", high=0.0)),
    ),
    Headline(
        "A penalty on what blocks add gives DFA half of BP's gain on the small task, and a tenth on CIFAR-10.",
        (Claim("A", "dfa, λ 0.01", "share", low=0.4), Claim("B", "dfa, λ 0.01", "share", low=0.0, high=0.2)),
    ),
    Headline(
        "With a terminal norm a weak penalty makes DFA's blocks worth three points and more on CIFAR-10 (λ = 1e-4), "
        "a strong one nothing that counts (λ = .1).",
        (Claim("phase", "dfa, λ 0.0001", "gain", low=0.03), Claim("phase", "dfa, λ 0.1", "gain", high=0.02)),
    ),
    Headline(
        "Without a terminal norm DFA's blocks are worth three points and more without a penalty; credit normalised per "
        "sample is of no use either way.",
        (
            Claim("phase, no norm", "dfa", "gain", low=0.03),
            Claim("phase, no norm", "dfa, norm sample", "gain", high=0.0),
            Claim("phase", "dfa, norm sample", "gain", high=0.0),
            Claim("phase", "dfa, norm sample, λ 0.0001", "gain", high=0.02),
        ),
    ),
    Headline(
        "In the ViT what learns the weights, or knows their signs, takes three fifths of BP's gain and more; FA and "
        "DFA end below BP's frozen twin.",
        (
            *(Claim("C", row, "share", low=0.6) for row in ("wm", "kp", "sign_fa")),
            *(Claim("C", row, "share", high=0.0) for row in ("fa", "dfa")),
        ),
    ),
    Headline(
        "In a convolutional net the signs of the weights are enough, random feedback is not.",
        (
            Claim("D", "sign_fa", "share", low=0.75),
            Claim("D", "fa", "share", high=0.5),
            Claim("D", "dfa", "share", high=0.5),
        ),
    ),
    Headline(
        "Six layers on Cora cannot show use of depth: backprop's own blocks gain nothing.",
        (Claim("E6", "bp", "gain", high=0.05),),
    ),
)


def _at_the_end(measure: Callable[[Facts, Snapshot], float | None], standing: Standing) -> Interval | None:
    """Over seeds, of which all must have it."""
    found = [measure(r.facts, r.last) for r in standing.method.whole]
    known = [value for value in found if value is not None]
    return t_interval(known) if known and len(known) == len(found) else None


def _gain(standing: Standing) -> Interval | None:
    depth = use_of_depth(standing.method)
    return t_interval(depth.gains) if depth else None


QUANTITIES: dict[str, tuple[Callable[[Standing], Interval | None], str]] = {
    "share": (lambda standing: standing.share, "CS004"),
    "gain": (_gain, "CS004"),
    "cos": (partial(_at_the_end, deep_cosine), "CS005"),
    "growth": (partial(_at_the_end, largest_growth), "CS001"),
    "accuracy": (lambda standing: standing.found.accuracy, DASH),
}
"""How each is found, over seeds, and the check that asks whether it is there, if one does."""


def find_interval(held: Held, claim: Claim) -> Interval | None:
    """Of a claim; None where its runs are not all on record."""
    standing = held.whole(claim.block, claim.row, claim.quantity)
    return QUANTITIES[claim.quantity][0](standing) if standing else None


def stands(claim: Claim, found: Interval | None) -> bool | None:
    """Whether the whole interval is within the bounds; None where there is none."""
    if found is None or found.low is None or found.high is None:
        return None
    return claim.low <= found.low and found.high <= claim.high


def say_bounds(claim: Claim) -> str:
    """What would have refuted it."""
    below, above = (short_number(bound, ".2f") for bound in (claim.low, claim.high))
    if claim.low == -np.inf:
        return f"above {above}"
    return f"below {below}" if claim.high == np.inf else f"below {below} or above {above}"
