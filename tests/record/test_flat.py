"""A snapshot laid flat: every measured number has one name, and no name stands for two."""

from dataclasses import dataclass, replace

import pytest
from builders import make_facts, make_snapshot, make_weights

from creditscope.record.flat import name_numbers


def test_numbers_go_by_their_paths():
    facts = make_facts()
    given = {"exact_norm": (0.25, 4.0), "all_zero": (3, 0), "cos": (None, 0.5)}
    snapshot = make_snapshot(facts, taps={"g_norm": (1e-3, 2.0, 3.0, 4.0, 5.0)}, weights=make_weights(**given))
    found = snapshot.scalars(facts)
    assert (found["loss"], found["accuracy"]) == (snapshot.loss, snapshot.accuracy)
    assert [found[f"taps/{i}/g_norm"] for i in range(5)] == [1e-3, 2.0, 3.0, 4.0, 5.0]
    assert [found[f"weights/{w.name}/exact_norm"] for w in facts.weights] == [0.25, 4.0]
    assert found["weights/stem.weight/all_zero"] == 3.0
    assert "weights/stem.weight/cos" not in found  # None: not measured
    assert found["weights/head.weight/cos"] == 0.5
    assert all(type(value) is float for value in found.values())
    assert not {"epoch", "step", "rows", "untrained", "notes"} & set(found)


def test_without_facts_weights_go_by_number():
    snapshot = make_snapshot(weights=make_weights(exact_norm=(0.25, 4.0)))
    found = snapshot.scalars()
    assert [found[f"weights/{i}/exact_norm"] for i in range(2)] == [0.25, 4.0]


def test_nothing_measured_is_left_out():
    """As many names as there are numbers in the snapshot."""
    snapshot = make_snapshot(weights=make_weights())
    numbers = sum(isinstance(value, float) for value in vars(snapshot).values())
    for group in (snapshot.taps, snapshot.weights):
        numbers += sum(value is not None for series in vars(group).values() for value in series)
    assert len(snapshot.scalars()) == numbers


@dataclass(frozen=True)
class Place:
    name: str


@dataclass(frozen=True)
class Measures:
    dead: tuple[float | None, ...]
    worst: float


def test_groups_that_come_later_are_named_by_the_list_of_their_name():
    """Whatever a snapshot may come to hold, of whatever the facts then list."""

    @dataclass(frozen=True)
    class Later:
        modules: Measures

    @dataclass(frozen=True)
    class Known:
        modules: tuple[Place, ...]

    called = (Place("a.b"), Place("c"), Place("a.b"))
    found = name_numbers(Later(Measures((0.5, None, 0.25), 0.75)), Known(called))
    assert found == {"modules/a.b/dead": 0.5, "modules/a.b#2/dead": 0.25, "modules/worst": 0.75}


@pytest.mark.parametrize("growth", [0.0, None])
def test_table_says_what_is_not_there(growth):
    snapshot = make_snapshot(taps={"h_rms": (growth, 2.0, 20.0, 60.0, 30.0), "z": None})
    lines = str(snapshot).splitlines()
    assert lines[1].split() == ["tap", "‖h‖", "growth", "‖g‖", "noise", "cos", "z"]
    assert [line.split()[2] for line in lines[2:]] == ["–", "–", "10.00", "3.00", "0.50"]
    assert {line.split()[-1] for line in lines[2:]} == {"–"}
    assert str(replace(snapshot, notes=("said besides",))).splitlines()[-1] == "said besides"
    assert len(lines) == 2 + len(snapshot.taps.h_rms)
