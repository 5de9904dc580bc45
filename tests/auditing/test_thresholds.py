"""The one table: what it refuses, that every number in it moves an outcome, and that it has all that checks read."""

from dataclasses import replace
from typing import Any

import pytest
from builders import make_facts, make_family, make_record, make_snapshot, make_weights
from judging import AIM, CHECKS, PASSED, blind_taps, judge, judge_seeds, make_moments
from networks import (
    MOVED,
    SICK,
    bad_moment,
    network_facts,
    network_moment,
    network_record,
    network_snapshot,
    network_start,
)

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.checks import MethodCheck, RunCheck, SeedsCheck
from creditscope.auditing.methods import Method
from creditscope.auditing.thresholds import EVERY_RUN_CHECK, table
from creditscope.errors import CreditscopeError


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("grwth", 1, r"grwth.*growth, .*task_gain"),
        ("growth", -1.0, "'growth' to be a number"),
        ("growth", float("nan"), "'growth' to be a number"),
        ("seeds", 2.5, r"seeds.*2\.5"),
        # 95 for 0.95 makes the bound NaN, and what is compared with NaN then passes; 2 for 2 pp is 200 pp
        *((name, 95, f"{name}.*95") for name in ("chance_confidence", "orientation", "depth_gain", "seed_share")),
    ],
)
def test_what_is_no_threshold_or_out_of_its_range_is_refused(name, value, said):
    with pytest.raises(CreditscopeError, match=said):
        Thresholds().changed(**{name: value})


def test_a_changed_copy_leaves_the_rest():
    before = Thresholds()
    after = before.changed(growth=20)
    assert (before.growth, after.growth, after.noise) == (50, 20, before.noise)


def test_the_table_shows_the_values_in_use():
    rows = {row["name"]: row for row in table(Thresholds().changed(growth=20))}
    assert (rows["growth"]["value"], rows["growth"]["published"]) == (20, "50, same quantity")
    assert {code for row in rows.values() for code in row["checks"]} == set(CHECKS) - {"CS007", "CS102", "CS103"} | {
        EVERY_RUN_CHECK
    }
    assert rows["seed_share"]["checks"] == (EVERY_RUN_CHECK,)
    assert all(row["meaning"] for row in rows.values())


def family(**taps: Any):
    return make_family(taps=taps)


def probed():
    """Gradients vanish; a probe reads 0.23 of 1,000 rows, whose lower bound is 0.208."""
    facts = make_facts()
    first = make_snapshot(facts, epoch=0, taps={"probe": 0.1})
    dead = make_snapshot(facts, weights=make_weights(step_all_zero=1), taps={"probe": 0.23})
    return [make_record(snapshots=[first, dead])]


def gains_of_3_5_and_7_points():
    """Mean 5 pp, standard error 1.15 pp: the lower bound is 1.6 pp at 95 % and 3.8 pp at 80 %."""
    rest = [r for r in make_family() if r.spec and (r.spec.frozen or r.spec.rule == "bp")]
    return rest + [make_record(seed=s, accuracy=0.4 + 0.002 * s + g) for s, g in ((1, 0.03), (2, 0.05), (3, 0.07))]


def by_seed(*taps: dict[str, Any], **own: Any):
    """Seeds 1, 2, … of DFA with these per-tap values; their baselines beside them."""
    rest = [r for r in make_family(seeds=range(1, len(taps) + 1)) if r.spec and (r.spec.frozen or r.spec.rule == "bp")]
    return rest + [make_record(seed=s, taps=one, **own) for s, one in enumerate(taps, start=1)]


def grown(*values: float):
    return by_seed(*({"h_rms": (1, v, v, v, v)} for v in values))


def dead(hits: int, seeds: int):
    """So many seeds have a weight without a gradient."""
    weights = [make_weights(step_all_zero=int(i < hits)) for i in range(seeds)]
    return [make_record(seed=i, snapshots=[make_snapshot(weights=w)]) for i, w in enumerate(weights)]


def below_frozen():
    """3 pp under the frozen nets, where BP gains 4 pp."""
    levels = {("dfa", False): 0.37, ("dfa", True): 0.40, ("bp", False): 0.44, ("bp", True): 0.40}
    return [make_record(rule=r, frozen=f, accuracy=a, seed=s) for (r, f), a in levels.items() for s in (1, 2, 3)]


def aiming_elsewhere(share: float):
    facts = {"rule": replace(AIM, label="DFA")}
    return [make_record(seed=s, facts=facts, taps={"descent_stage": share}) for s in (1, 2, 3)]


def network(**others: Any):
    """One snapshot of a watched network."""
    return [network_record(network_moment(network_snapshot(network_facts(), **others)))]


def trained(**others: Any):
    """Two, the first before training."""
    return [network_record(network_moment(network_start(), network_snapshot(network_facts(), **others)))]


def declared_exact():
    return [make_record(facts={"exact_taps": (2,)}, taps={"cos": 0.9})]


SMALL = {"null_sd": 0.01, "null_sd_F": 0.01, "stage_cos": 0.0}
"""Nulls that a cosine of 0.05 is far above, and weights that know nothing."""
WIDE = [{**SMALL, "cos": c, "cos_F": c} for c in (0.1, 0.2, 0.3)]
"""Mean 0.2, standard error 0.058: the lower bound is 0.031 at 95 % and 0.14 at 80 %."""
MOVES: dict[str, tuple[str, Any, float, str, str]] = {
    "growth": ("CS001", lambda: family(h_rms=(1, 30, 30, 30, 30)), 20, "passed", "issue"),
    "noise": ("CS002", lambda: family(g_noise=0.2), 0.3, "issue", "passed"),
    "fitted_rows": ("CS002", lambda: [make_record(snapshots=[make_snapshot(rows_fitted=400)])], 0.3, "passed", "issue"),
    "floor": ("CS002", lambda: family(g_norm=1e-4), 1e-3, "passed", "tip"),
    "common": ("CS003", lambda: family(common=0.4), 0.5, "tip", "passed"),
    "depth_gain": ("CS004", make_family, 0.4, "passed", "issue"),
    "depth_confidence": ("CS004", gains_of_3_5_and_7_points, 0.8, "undecided", "passed"),
    "task_gain": ("CS004", make_family, 0.5, "passed", "not applicable"),
    "seeds": ("CS004", make_family, 4, "passed", "skipped"),
    "depth_loss": ("CS004", below_frozen, 0.035, "issue", "not applicable"),
    "alignment": ("CS005", lambda: family(cos=0.1, cos_F=0.1, **SMALL), 0.2, "passed", "issue"),
    "alignment_confidence": ("CS005", lambda: by_seed(*WIDE), 0.8, "undecided", "passed"),
    "orientation": ("CS005", lambda: family(cos=0.06, cos_F=0.06), 0.05, "undecided", "passed"),
    "weighted_share": ("CS005", lambda: family(cos=0.9, cos_F=0.4), 0.4, "undecided", "passed"),
    "exact_cos": ("CS005", declared_exact, 0.8, "issue", "passed"),
    "hidden_share": ("CS006", lambda: by_seed(*[blind_taps(3, 4)] * 3), 0.4, "issue", "passed"),
    "hidden_taps": ("CS006", lambda: by_seed(*[blind_taps(2, 3, 4)] * 3), 5, "issue", "not applicable"),
    "probe_gain": ("CS009", probed, 0.2, "issue", "passed"),
    "chance_gain": ("CS010", lambda: [make_record(accuracy=0.124)], 0.05, "passed", "issue"),
    "chance_confidence": ("CS010", lambda: [make_record(accuracy=0.124)], 0.99, "passed", "undecided"),
    "rewind_loss": ("CS011", make_family, 0.06, "passed", "not applicable"),
    "trained_share": ("CS011", lambda: by_seed(*[{"rewind": (None, 0.7, 0.7, 0.6, 0.6)}] * 3), 0.6, "passed", "issue"),
    "descent_share": ("CS012", lambda: aiming_elsewhere(0.1), 0.2, "passed", "issue"),
    "seed_confidence": ("CS001", lambda: grown(45, 46, 47), 0.999, "passed", "undecided"),
    "seed_share": ("CS007", lambda: dead(1, 20), 0.1, "passed", "undecided"),
    "used_classes": ("CS101", lambda: network(output={"classes": 100, "largest_label": 9.0}), 0.05, "issue", "passed"),
    "start_loss": ("CS104", lambda: network(loss=10.0), 10, "issue", "passed"),
    "start_loss_numbers": ("CS104", lambda: network(loss=10.0, output={"classes": None}), 2, "passed", "issue"),
    "start_rms": ("CS104", lambda: network(taps={"h_rms": 50.0}, untrained=True), 20, "passed", "issue"),
    "sure_rows": ("CS104", lambda: network(loss=3.0, output={"sure": 0.4}), 0.3, "passed", "issue"),
    "vanishing": ("CS105", lambda: network(**SICK["CS105"]), 1e-9, "issue", "passed"),
    "dead_units": ("CS106", lambda: network(**SICK["CS106"]), 0.95, "issue", "passed"),
    "saturated": ("CS107", lambda: network(**SICK["CS107"]), 0.99, "issue", "passed"),
    "dispersion": ("CS108", lambda: network(**SICK["CS108"]), 1e-7, "issue", "passed"),
    "dropped": ("CS108", lambda: network(modules={"dropped": 0.85}), 0.8, "passed", "issue"),
    "line": ("CS108", lambda: network(loss=2.0, modules={"rank": (9, 1.05, 1.2, 1.2, 1.1)}), 1.1, "passed", "issue"),
    "shrunk": ("CS109", lambda: trained(weights={"w_norm": 2.0}), 0.5, "passed", "issue"),
    "update_least": ("CS110", lambda: trained(step=0, loss=2.3, weights={"update": 1e-5}), 1e-6, "issue", "passed"),
    "update_low": ("CS110", lambda: trained(step=10, loss=2.3, weights={"update": 1e-5}), 1e-7, "issue", "passed"),
    "update_step": (
        "CS110",
        lambda: trained(step=10, loss=2.25, accuracy=0.1, weights={"update": 0.4}),
        0.1,
        "issue",
        "passed",
    ),
    "idle_gain": (
        "CS110",
        lambda: trained(step=10, loss=2.0, accuracy=0.1, weights={"update": 0.4}),
        0.2,
        "passed",
        "issue",
    ),
    "update_fast": (
        "CS110",
        lambda: trained(step=10, loss=9.0, accuracy=0.3, weights={"update": 0.8}),
        0.2,
        "issue",
        "passed",
    ),
    "update_high": (
        "CS110",
        lambda: trained(step=0, loss=9.0, accuracy=0.1, weights={"update": 0.8}),
        0.9,
        "issue",
        "passed",
    ),
    "learnt_gain": (
        "CS110",
        lambda: trained(step=0, loss=9.0, accuracy=0.3, weights={"update": 0.8}),
        0.3,
        "passed",
        "issue",
    ),
    "loss_gain": ("CS110", lambda: trained(step=0, loss=2.2, weights={"update": 1e-5}), 0.1, "passed", "issue"),
    "risen": ("CS110", lambda: trained(step=0, loss=2.9, accuracy=0.1, weights={"update": 0.8}), 2, "issue", "passed"),
}
"""For every threshold: a check, records, another value, and the outcome before and after."""


@pytest.mark.parametrize("name", [row["name"] for row in table()])
def test_every_threshold_moves_an_outcome(name):
    code, make, value, before, after = MOVES[name]
    records = make()

    def outcome(limits: Thresholds) -> str:
        (found,) = [m for m in audit(records, limits=limits).methods if m.method == "DFA" or m.network]
        return str({f.code: f.outcome for f in found.findings}[code])

    assert (outcome(Thresholds()), outcome(Thresholds().changed(**{name: value}))) == (before, after)


@pytest.mark.parametrize("code", ["CS001", "CS002", "CS003", "CS005", "CS006", "CS007", "CS008", "CS010"])
def test_a_healthy_moment_passes(code):
    assert judge(code).outcome == PASSED
    assert judge_seeds(code, make_moments()).outcome == PASSED


@pytest.mark.parametrize("code", CHECKS)
def test_a_check_reads_the_thresholds_that_the_table_gives_it(code):
    """Sensitivity judges again only the checks that the table names, so the table must name them all."""
    read = set()

    class Spy(Thresholds):
        def __getattribute__(self, name: str):
            if name in Thresholds.__dataclass_fields__:
                read.add(name)
            return super().__getattribute__(name)

    check, limits = CHECKS[code], Spy()
    facts = make_facts(rule=AIM if code == "CS012" else "block_fa")
    if isinstance(check, MethodCheck):
        runs = {frozen: {s: make_record(seed=s, frozen=frozen) for s in (1, 2, 3)} for frozen in (False, True)}
        better = {s: make_record(rule="bp", seed=s, accuracy=0.9) for s in (1, 2, 3)}
        check.judge(Method("DFA", "here", runs[False], runs[True], better, runs[True]), limits)
    for moment in map(bad_moment, (SICK | MOVED) if check.network else ()):
        for start in (moment.history[0], network_start(weights={"changed": None}), network_start(loss=9000.0)):
            for step, move, loss in ((0, None, 9.0), (10, None, 2.3), (0, 0.8, 9.0), (0, 0.8, 2.3), (0, 1e-7, 2.3)):
                weights = moment.snapshot.weights
                assert isinstance(check, RunCheck)
                assert weights is not None
                moved = weights if move is None else replace(weights, update=(move,) * 5)
                last = replace(moment.snapshot, step=step, loss=loss, accuracy=0.1, weights=moved)
                right = replace(last, accuracy=0.5)
                for final in (last, right):
                    check.judge(replace(moment, snapshot=final, history=(start, final)), limits)
                check.judge(replace(moment, snapshot=replace(last, untrained=True), history=(last,)), limits)
    for taps in (
        () if check.network else ({}, {"h_rms": (1, 9, 9, 9, 0.001)}, {"cos_F": -0.5}, {"cos": 0.0}, {"g_noise": 0.5})
    ):
        for weights in (make_weights(), make_weights(step_all_zero=1)):
            moments = make_moments(facts, taps=taps, weights=weights)
            if isinstance(check, RunCheck):
                first = make_snapshot(facts, epoch=0, taps={"probe": 0.1})
                check.judge(replace(moments[0], untrained=first), limits)
            elif isinstance(check, SeedsCheck):
                check.judge(moments, limits)
    assert read == {row["name"] for row in table() if code in row["checks"]}
