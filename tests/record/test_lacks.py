"""Records from before something was measured: they are read and drawn, and trained anew where runs are trained."""

from dataclasses import replace
from typing import Any

import pytest
from builders import make_facts, make_record, make_snapshot, write_record

from creditscope.errors import UnfinishedError
from creditscope.record import Record, RecordWriter, load_records, read_record, stored_record
from creditscope.record.stored import ended_meanwhile, lacks
from creditscope.record.table import richness
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run


def poor(record: Record, *fields: str) -> Record:
    """The record without fields of its last snapshot's taps."""
    last = replace(record.last, taps=replace(record.last.taps, **dict.fromkeys(fields, ())))
    return replace(record, snapshots=(*record.snapshots[:-1], last))


@pytest.mark.parametrize("tier", ["quick", "standard", "full"])
@pytest.mark.parametrize("field", ["null_q99", "stage_cos", "rewind"])
def test_what_every_tier_measures_at_the_end(tier, field):
    record = make_record(tier=tier)
    assert lacks(record) == ()
    assert lacks(poor(record, field)) == (field,)
    first = replace(record.snapshots[0], taps=poor(record, field).last.taps)
    assert lacks(replace(record, snapshots=(first, record.last))) == ()


def test_what_could_not_be_measured_does_not_lack():
    nothing = dict.fromkeys(("null_q99", "stage_cos", "rewind", "descent"), None)
    assert lacks(make_record(taps=nothing, snapshots=[make_snapshot(taps=nothing, descent_turns=8)])) == ()


@pytest.mark.parametrize(("tier", "found"), [("quick", ()), ("standard", ("descent_turns",))])
def test_few_rotations_behind_descent(tier, found):
    record = make_record(tier=tier, snapshots=[make_snapshot(epoch=1, descent_turns=8)])
    assert lacks(record) == found
    assert lacks(poor(record, "descent")) == ()


def test_of_frozen_blocks_that_are_measured_quickly_only_accuracy_is_asked():
    frozen = poor(make_record(frozen=True, tier="quick"), "null_q99", "stage_cos", "rewind")
    assert lacks(frozen) == ()
    assert lacks(poor(make_record(frozen=True), "rewind")) == ("rewind",)


@pytest.mark.parametrize("others", [{"diverged": 1}, {"status": "running"}])
def test_a_run_that_has_no_end_lacks_nothing(others):
    assert lacks(poor(make_record(**others), "rewind")) == ()
    assert lacks(replace(make_record(), spec=None)) == ()


def test_of_two_records_of_a_run_the_whole_one_is_richer():
    whole = make_record()
    extra = replace(poor(whole, "rewind"), snapshots=(make_snapshot(make_facts(), epoch=0), *whole.snapshots))
    assert richness(whole) > richness(poor(extra, "rewind"))


class TestOnDisk:
    def test_it_is_read_but_not_taken_for_whole(self, tmp_path):
        record = poor(make_record(), "rewind")
        folder = write_record(tmp_path, record)
        assert stored_record(tmp_path, record.spec, problems=[]) == read_record(folder)
        assert stored_record(tmp_path, record.spec, problems=[], whole=True) is None
        with RecordWriter(tmp_path, record.spec).open() as writer:
            assert not ended_meanwhile(writer)

    def test_a_record_that_is_begun_anew_is_not_finished(self, tmp_path):
        record, problems = make_record(), []
        write_record(tmp_path, record)
        with RecordWriter(tmp_path, record.spec).open() as writer:
            assert ended_meanwhile(writer) == "complete"
            writer.begin()
        assert (stored_record(tmp_path, record.spec, problems=problems), problems) == (None, [])

    def test_the_run_is_trained_anew_in_its_place_and_kept_until_that_is_finished(self, tmp_path):
        given = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "epochs": 1, "tier": "quick"}
        specs = [plan_run(**given, eval_rows=32, snapshot_every=0, seed=seed) for seed in (1, 2)]
        how: dict[str, Any] = {"slots": 1, "device": "cpu", "problems": []}
        whole = run_all(specs, tmp_path, **how)
        for record in whole:
            write_record(tmp_path, replace(poor(record, "rewind"), path=None))
        with pytest.raises(UnfinishedError):
            run_all(specs, tmp_path, **how, time_limit=0)
        assert how["problems"] == []  # nothing is trained
        names, folder = ("spec.json", "snapshots.jsonl", "provenance.json"), whole[0].path
        old = {name: (folder / name).read_bytes() for name in names}
        for _ in range(2):  # what was begun anew and stopped is not taken for the finished one
            with RecordWriter(tmp_path, specs[0]).open() as writer:
                writer.begin()
        assert {name: (folder / f"{name}.before").read_bytes() for name in names} == old
        assert [r.spec for r in load_records(tmp_path, problems=[])] == [specs[1]]
        again = run_all(specs, tmp_path, **how)
        assert [r.snapshots for r in again] == [r.snapshots for r in whole]
        assert how["problems"] == ["1 record lacks what is measured by now and is trained again."]
        assert all(r.provenance.started for r in again)
        assert not list(tmp_path.rglob("*.before"))
        assert {path.name for path in tmp_path.iterdir()} == {r.path.name for r in whole}
