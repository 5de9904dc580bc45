"""Which published numbers of DFA a way to normalise its credit explains, at the λ and on the net they were said of."""

from collections.abc import Mapping, Sequence

from creditscope.paper.published.compare import Comparison, compare
from creditscope.paper.published.numbers import CONDITIONS, PUBLISHED, Published
from creditscope.paper.published.readings import Values, read_runs, shared
from creditscope.record import Record, RunSpec

LIKE = ("task", "net", "rule", "rule_options", "frozen", "targets", "train_last", "optimiser", "lr")
"""What a published run has in common with the plain one of DFA; how long it was trained may differ."""


def numbers_of(penalty: float, *, terminal_norm: bool) -> list[Published]:
    """Those that one run says at its end, by DFA on the net of the audit at this λ, and that are like for like."""
    return [
        one
        for one in PUBLISHED
        if one.reader and not one.apart and one.kind != "claim" and _is_said_of(one, penalty, terminal_norm)
    ]


def _is_said_of(one: Published, penalty: float, terminal_norm: bool) -> bool:
    (condition,), plain = one.conditions, CONDITIONS["dfa"]
    net = {**plain["net_options"], "terminal_norm": terminal_norm}
    alike = all(condition.get(name) == plain.get(name) for name in LIKE)
    return alike and condition["net_options"] == net and condition.get("penalty", 0.0) == penalty


def explain(
    cells: Mapping[str, Sequence[Record]], penalty: float, *, terminal_norm: bool
) -> dict[str, list[tuple[Published, Comparison]]]:
    """By normalisation every number that all have an answer for, each on the same seeds.

    Else one would explain more by having fewer seeds, and so wider intervals.
    """
    found: dict[str, list[tuple[Published, Comparison]]] = {name: [] for name in cells}
    for number in numbers_of(penalty, terminal_norm=terminal_norm):
        assert number.reader
        values: dict[str, Values] = {}
        for name, records in cells.items():
            runs = {r.spec.seed: r for r in records if r.spec}
            values[name] = read_runs(runs, number.reader)
        seeds = shared(own.answered for own in values.values())
        said = {name: compare(number, own.on(seeds)) for name, own in values.items()}
        if all(own.inside is not None for own in said.values()):
            for name, own in said.items():
                found[name].append((number, own))
    return found


def count_inside(found: Sequence[tuple[Published, Comparison]]) -> tuple[int, int]:
    """How many are inside, of how many."""
    return sum(bool(own.inside) for _, own in found), len(found)


def is_audited_net(spec: RunSpec) -> bool:
    """Whether it is trained on the net and task that the numbers were said of, whatever its terminal norm."""
    plain = CONDITIONS["dfa"]
    theirs = {**plain["net_options"], "terminal_norm": spec.net_options.get("terminal_norm")}
    return (spec.task, spec.net, spec.net_options) == (plain["task"], plain["net"], theirs)
