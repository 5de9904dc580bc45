"""Records with named axes."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from builders import make_facts, make_family, make_record, make_snapshot
from pages import texts

from creditscope.errors import CreditscopeError
from creditscope.record import RuleFacts
from creditscope.record.table import growths, largest_growth, read, to_xarray
from creditscope.runs import Runs

AXES = ("rule", "seed", "epoch", "tap")


def record(rule: str, seed: int, epochs: tuple[int, ...], *, depth: int = 2):
    """A record whose numbers say where they belong: accuracy = seed + epoch/100, cos = that + tap/1000."""
    facts, numbers = make_facts(rule=rule, depth=depth), {e: seed + e / 100 for e in epochs}
    taps = {e: {"cos": [number + i / 1000 for i in range(depth + 1)], "rows_used": 17} for e, number in numbers.items()}
    snapshots = [make_snapshot(facts, epoch=e, accuracy=numbers[e], taps=taps[e]) for e in epochs]
    return make_record(rule=rule, seed=seed, facts={"depth": depth}, snapshots=snapshots)


RECORDS = [record("dfa", 2, (0, 5, 10)), record("bp", 1, (0, 10)), record("dfa", 1, (0, 5), depth=1)]


def test_every_number_is_in_its_own_place_and_where_there_is_none_is_nan():
    data = to_xarray(RECORDS)
    assert (data["cos"].dims, data["accuracy"].dims) == (AXES, AXES[:3])
    assert set(data.dims) == set(AXES)
    assert list(data["tap"].values) == ["stem", "blocks.0", "blocks.1"]
    rules, seeds, all_epochs = (list(data[axis].values) for axis in AXES[:3])
    assert (rules, seeds, all_epochs) == (["dfa", "bp"], [1, 2], [0, 5, 10])
    there = {("dfa", 2): ((0, 5, 10), 3), ("bp", 1): ((0, 10), 3), ("dfa", 1): ((0, 5), 2)}
    for rule, seed, epoch in product(rules, seeds, all_epochs):
        epochs, taps = there.get((rule, seed), ((), 0))
        here, known = data.sel(rule=rule, seed=seed, epoch=epoch), epoch in epochs
        expected = [seed + epoch / 100 + i / 1000 if known and i < taps else np.nan for i in range(3)]
        np.testing.assert_array_equal(here["cos"].values, expected)
        np.testing.assert_array_equal(here["accuracy"].values, seed + epoch / 100 if known else np.nan)
    assert float(data["rows_used"].sel(rule="bp", seed=1, epoch=10, tap="stem")) == 17


def test_what_was_not_measured_is_nan():
    gap = make_snapshot(gamma=None, taps={"z": (1.0, None, 3.0, 4.0, 5.0)})
    data = to_xarray([make_record(snapshots=[gap])])
    np.testing.assert_array_equal(data["z"].values.ravel(), [1, np.nan, 3, 4, 5])
    assert np.isnan(data["gamma"].item())


def test_frozen_and_variants_are_rules_of_their_own():
    records = [
        make_record(),
        make_record(frozen=True),
        make_record(penalty=0.01, credit_norm="batch"),
        make_record(rule="fa", facts={"rule": RuleFacts(name="fa", label="FA", variant="head exact")}),
    ]
    names = ["dfa", "dfa, frozen", "dfa, norm batch, λ 0.01", "fa, head exact"]
    assert list(to_xarray(records)["rule"].values) == names


def test_a_watched_model_has_seed_0():
    assert list(to_xarray([replace(make_record(), spec=None)])["seed"].values) == [0]


def test_runs_say_how_many_and_which_they_are():
    names = [r.name for r in RECORDS]
    assert repr(Runs(RECORDS)) == f"Runs(3: {', '.join(names)})"
    assert repr(Runs([*RECORDS, RECORDS[0]])) == f"Runs(4: {', '.join(names)}, …)"


def test_runs_are_drawn_with_every_rule_that_was_trained():
    records = {r.spec.digest(): r for rule in ("dfa", "fa") for r in make_family(rule)}
    said = texts(Runs(list(records.values())).plot())
    assert [label for label in ("BP", "DFA", "FA") if label not in said.split()] == []


def test_no_record_is_refused():
    with pytest.raises(CreditscopeError, match="Expected at least one record to view, but got none"):
        to_xarray([])


def test_runs_give_the_same_as_a_long_table():
    frame = Runs(RECORDS).frame().set_index(list(AXES))
    assert len(frame) == 2 * 2 * 3 * 3
    assert frame.loc[("dfa", 2, 5, "blocks.1"), "cos"] == pytest.approx(2.052)
    assert frame.loc[("bp", 1, 10, "stem"), "accuracy"] == pytest.approx(1.10)


def test_of_one_run_measured_twice_the_record_that_holds_more_is_viewed():
    rich = make_record(rule="bp", seed=1, tier="full", eval_rows=1024)
    poor = make_record(rule="bp", seed=1, tier="quick", eval_rows=64, taps={"cos": 0.1})
    for records in ([rich, poor], [poor, rich]):
        assert float(to_xarray(records)["cos"].max()) == rich.last.taps.cos[0]


def test_growth_is_over_residual_stages_of_equal_shape_alone():
    shapes = ((8,), (8,), (8,), (16,), (16,))
    facts = make_facts(residual=(False, True, False, True, True), tap_shapes=shapes)
    taken = make_snapshot(facts, taps={"h_rms": (1.0, 2.0, 20.0, 60.0, 30.0)})
    assert growths(facts, taken) == {1: 2.0, 4: 0.5}
    assert read(facts, taken, "growth") == [None, 2.0, None, None, 0.5]
    assert largest_growth(facts, taken) == 2.0
