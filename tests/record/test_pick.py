"""Runs are picked by what must be equal and what varies; nothing is taken for something else."""

import numpy as np
import pytest
from builders import make_record, make_snapshot

from creditscope.errors import CreditscopeError
from creditscope.record.pick import pick

RULES = {"rule": ("bp", "dfa")}


def runs(rules=("bp", "dfa"), seeds=(1, 2), **fields):
    return [make_record(rule=rule, seed=seed, **fields) for rule in rules for seed in seeds]


def by_rule(records, **others):
    return pick(records, vary={"rule": "rule"}, where=RULES, **others)


def test_cells_hold_the_runs_of_each_group_by_seed_and_their_values():
    found = by_rule(runs())
    assert (found.along("rule"), found.seeds, found.gaps) == (["bp", "dfa"], (1, 2), ())
    assert list(found["dfa"].runs) == [1, 2]
    cos = np.array([r.last.taps.cos for r in found["dfa"].records], dtype=float)
    np.testing.assert_array_equal(found["dfa"].values("cos"), cos)
    np.testing.assert_array_equal(found["dfa"].values("cos", tap=-1), cos[:, -1])


def test_what_was_asked_for_and_is_not_there_is_a_gap_in_its_place():
    found = pick(runs(rules=("dfa",)), vary={"rule": "rule"}, where={"rule": ("fa", "dfa")})
    assert [bool(cell) for cell in found] == [False, True]
    assert found.gaps == ("fa: not on record",)


def test_missing_and_diverged_seeds_are_named():
    records = [*runs(rules=("bp",)), make_record(rule="dfa", seed=1, diverged=3)]
    found = by_rule(records)
    assert found["dfa"].lost == {1: "diverged in epoch 3", 2: "not on record"}
    assert list(found["dfa"].diverged) == [1]


def test_frozen_runs_and_rungs_of_the_ladder_are_left_out_unless_they_vary():
    records = [*runs(seeds=(1,)), *runs(seeds=(1,), frozen=True), *runs(seeds=(1,), train_last=1)]
    assert len(by_rule(records).records) == 2
    both = pick(records, vary={"rule": "rule", "frozen": "frozen"})
    assert list(both.cells) == [("bp", False), ("bp", True), ("dfa", False), ("dfa", True)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("epochs", 7), ("net_options", {"depth": 9}), ("lr", 0.5), ("rule_options", {"scale": "unit"})],
)
def test_runs_of_another_setting_are_refused_by_the_name_of_what_differs(name, value):
    other = runs(rules=("dfa",), seeds=(3,), **{name: value})
    with pytest.raises(CreditscopeError, match=name):
        by_rule([*runs(), *other])


def test_a_field_that_is_free_may_differ():
    records = [*runs(), *runs(rules=("dfa",), seeds=(3,), lr=0.5)]
    assert list(by_rule(records, free=("lr",))["dfa"].runs) == [1, 2, 3]


def test_rules_may_have_options_of_their_own():
    found = by_rule([*runs(rules=("bp",)), *runs(rules=("dfa",), rule_options={"scale": "unit"})])
    assert len(found.records) == 4


def test_a_rule_has_one_variant_whatever_else_varies():
    other = runs(rules=("dfa",), penalty=0.1, rule_options={"scale": "unit"})
    with pytest.raises(CreditscopeError, match="scale"):
        pick([*runs(), *other], vary={"rule": "rule", "penalty": "penalty"})


def test_two_settings_are_not_taken_for_one_run_measured_twice():
    """Whichever comes first: a field that is free may not differ between records of one group and seed."""
    records = [*runs(), *runs(weight_decay=0.5)]
    for given in (records, records[::-1]):
        with pytest.raises(CreditscopeError, match="weight_decay"):
            by_rule(given, free=("weight_decay",))


def test_runs_that_all_diverged_can_be_asked_for():
    records = [make_record(rule="dfa", seed=1, diverged=3)]
    with pytest.raises(CreditscopeError, match="diverged"):
        by_rule(records)
    found = by_rule(records, lost=True).shared()
    assert (list(found["dfa"].diverged), found.first.spec.seed) == ([1], 1)


def test_the_richer_record_of_one_run_is_taken_or_the_one_chosen():
    records = runs(rules=("dfa",), seeds=(1,), tier="standard") + runs(rules=("dfa",), seeds=(1,), tier="quick")
    assert by_rule(records)["dfa"].first.spec.tier == "standard"
    longer = [make_snapshot(epoch=epoch) for epoch in range(5)]
    more = [make_record(seed=1, epochs=1, tier="quick", snapshots=longer), records[0]]
    assert [by_rule(given)["dfa"].first.spec.tier for given in (more, more[::-1])] == ["standard"] * 2
    chosen = by_rule(records, choose=lambda record: record.spec.tier == "quick")
    assert chosen["dfa"].first.spec.tier == "quick"


def test_shared_keeps_the_seeds_that_all_have():
    found = by_rule([*runs(), *runs(rules=("dfa",), seeds=(3,))]).shared()
    assert (found.seeds, list(found["dfa"].runs)) == ((1, 2), [1, 2])
    with pytest.raises(CreditscopeError, match="seed"):
        by_rule([*runs(rules=("bp",), seeds=(1,)), *runs(rules=("dfa",), seeds=(2,))]).shared()


def test_shared_seeds_are_the_same_ones_not_the_first_of_each():
    records = [*runs(rules=("bp",), seeds=(4, 3, 2)), *runs(rules=("dfa",), seeds=(1, 2, 3, 5))]
    found = by_rule(records).shared()
    assert (found.seeds, set(found["bp"].runs), set(found["dfa"].runs)) == ((2, 3), {2, 3}, {2, 3})
    assert [record.spec.seed for record in found["dfa"].records] == list(found["dfa"].runs)
    assert (set(found["bp"].lost), set(found["dfa"].lost)) == ({1, 4, 5}, {1, 4, 5})


def test_nothing_to_pick_is_an_error_that_says_what_was_asked():
    with pytest.raises(CreditscopeError, match="kaft"):
        pick(runs(), vary={"rule": "rule"}, where={"rule": "kaft"})


def test_what_was_not_measured_is_nan_in_its_place():
    bare = make_record(rule="dfa", seed=2, taps={"rho": ()})
    cell = by_rule([*runs(seeds=(1,)), bare])["dfa"]
    assert np.isnan(cell.values("rho", tap=1)).tolist() == [False, True]
    assert np.isnan(cell.course("rho", tap=1)[1]).all(axis=1).tolist() == [False, True]
    alone = by_rule([*runs(rules=("bp",)), bare])["dfa"]
    assert np.isnan(alone.values("rho", tap=1)).tolist() == [True]
    assert alone.course("rho", tap=1)[1].shape == (1, 2)


def test_a_course_is_over_the_epochs_that_all_runs_have():
    cell = by_rule(runs())["dfa"]
    epochs, values = cell.course("g_norm", tap=1)
    assert values.shape == (2, len(epochs))
    assert values[0, -1] == cell.first.last.taps.g_norm[1]
