"""Where every row of a block of the league stands: its share of backprop's gain, its verdict, and what it cost."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from creditscope.auditing import Audit, MethodAudit, audit
from creditscope.auditing.depth import OWN_FROZEN, use_of_depth
from creditscope.auditing.methods import Method
from creditscope.auditing.stats import Interval, known_mean
from creditscope.auditing.strip import make_strip, short_number, write_markdown
from creditscope.paper.commands.reproduce import worker_seconds
from creditscope.paper.studies import RunIndex, Study, drop_repeated, find_wanted
from creditscope.paper.studies._league import Block
from creditscope.record import Facts, Record, Snapshot
from creditscope.record.table import largest_growth, method_name, read
from creditscope.text import DASH, markdown

COLUMNS = ("row", "share of BP's gain", "deep cosine", "n", "passes", "seconds", "verdict")
OWN_TWIN = " †"
"""Behind a share over the rule's own frozen twin."""
WIDTH = 120
"""Columns of strips on a page."""
ABOUT_COLUMNS = (
    "*share of BP's gain*: Δ/Δ_BP, accuracy over the better of two frozen twins, the rule's own (†) and BP's, in units "
    "of BP's gain over frozen BP, ± 95 % t interval over seeds, paired, where BP's gain is shown to be above 0; rows "
    "with and without † are in no common order of accuracy; *deep cosine*: mean over taps without exact credit, at the "
    "end; *passes*: what a step costs beyond backprop's, in forward passes; *seconds*: of workers, for all n seeds, "
    "twins aside."
)


@dataclass(frozen=True)
class Standing:
    """One row: a rule with its options in a setting, over seeds."""

    method: Method
    found: MethodAudit

    @cached_property
    def name(self) -> str:
        """As predictions call it: "dfa, λ 0.01"."""
        return method_name(self.method.first)

    @property
    def rule(self) -> str:
        """As it was asked for: a name, or file.py:Class."""
        return self.method.spec.rule if self.method.spec else ""

    @property
    def penalty(self) -> float:
        """λ."""
        return self.method.spec.penalty if self.method.spec else 0.0

    @property
    def credit_norm(self) -> str:
        """By what credit is divided."""
        return self.method.spec.credit_norm if self.method.spec else "none"

    @cached_property
    def share(self) -> Interval | None:
        """Δ/Δ_BP; None without twins, or where BP gains nothing."""
        depth = use_of_depth(self.method)
        return depth.share_interval if depth else None

    @cached_property
    def cos(self) -> float | None:
        """At the end, mean over seeds."""
        return known_mean(deep_cosine(r.facts, r.last) for r in self.method.whole)

    @property
    def over_own_twin(self) -> bool:
        """Whether the rule's own frozen twin is the better baseline; BP has no other."""
        depth = use_of_depth(self.method)
        return bool(depth and self.share and not self.is_bp and depth.baseline == OWN_FROZEN)

    @property
    def passes(self) -> float:
        """Beyond backprop's, in forward passes."""
        return self.method.facts.rule.passes

    @property
    def seconds(self) -> float:
        """Of workers, for all its seeds."""
        return worker_seconds(list(self.method.runs.values()))

    @property
    def is_bp(self) -> bool:
        """Backprop, with or without a penalty."""
        return self.rule == "bp"

    @property
    def place(self) -> tuple[float, float]:
        """By which rows are ordered, the first first: by share, where there is one, then by accuracy."""
        accuracy = self.found.accuracy.mean if self.found.accuracy else 0.0
        return (-self.share.mean if self.share else float("inf")), -accuracy


def mean_over_taps(quantity: str, facts: Facts, snapshot: Snapshot) -> float | None:
    """Over taps without exact credit; None where all are exact, or it was not measured."""
    values = read(facts, snapshot, quantity) or ()
    return known_mean(values[tap] for tap in facts.inexact_taps if tap < len(values))


deep_cosine = partial(mean_over_taps, "cos")


def growth(facts: Facts, snapshot: Snapshot) -> float | None:
    """Logarithm of the largest over a block, so that its mean over seeds is a geometric one."""
    found = largest_growth(facts, snapshot)
    return math.log(found) if found else None


def find_block(block: Block, records: Iterable[Record]) -> list[Record]:
    """Those of the records that are runs of a block."""
    return find_wanted(Study("league", block.plan()), records)


def count_missing(block: Block, records: Iterable[Record]) -> tuple[int, int]:
    """How many runs of a block are not on record, and how many it has."""
    index, wanted = RunIndex(records), drop_repeated(block.plan())
    return sum(not index.fitting(one) for one in wanted), len(wanted)


def rank(judged: Audit) -> list[Standing]:
    """The methods of one setting, the one that takes most of BP's gain first."""
    standings = [Standing(g, m) for g, m in zip(judged.groups, judged.methods, strict=True)]
    return sorted(standings, key=lambda one: one.place)


def judge_block(block: Block, records: Iterable[Record]) -> Audit | None:
    """The methods of a block that have a trained run on record; None if none has."""
    found = find_block(block, records)
    return audit(found) if any(not r.spec.frozen for r in found if r.spec) else None


def write_share(found: Interval | None) -> str:
    """Two digits, which are more than seeds tell.

    >>> write_share(Interval(0.884, 0.85, 0.918, 20)), write_share(Interval(1.0, 1.0, 1.0, 20)), write_share(None)
    ('.88 ± .03', '1.00', '–')
    """
    if found is None:
        return DASH
    half = 0.0 if found.high is None else found.high - found.mean
    return short_number(found.mean, ".2f") + (f" ± {short_number(half, '.2f')}" if half > 1e-9 else "")


def write_block(standings: Sequence[Standing], own: Collection[str] = ()) -> str:
    """The strips of a block and the numbers behind its order, as Markdown; those of rules in `own` are bold."""
    strips = write_markdown([make_strip(one.found) for one in standings], WIDTH)
    rows = [
        [
            f"**{markdown(one.found.method)}**" if one.rule in own else markdown(one.found.method),
            write_share(one.share) + OWN_TWIN * one.over_own_twin,
            DASH if one.cos is None else short_number(one.cos, ".3f"),
            str(one.share.n if one.share else len(one.method.whole)),
            f"{one.passes:g}",
            f"{one.seconds:,.0f}",
            _verdict(one.found),
        ]
        for one in standings
    ]
    table = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join([strips, "", *(f"| {' | '.join(line)} |" for line in table)])


def _verdict(found: MethodAudit) -> str:
    why = [*found.verdict.codes, *([f"diverged: {found.verdict.diverged}"] if found.verdict.diverged else [])]
    return found.verdict.word + (f" ({', '.join(why)})" if why else "")
