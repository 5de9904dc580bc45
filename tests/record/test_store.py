"""Records on disk: what is written is what is read, and what is damaged is named and costs nothing else."""

import base64
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_record, make_snapshot, make_spec, make_taps, make_weights, unseal, write_record
from hypothesis import given, settings
from hypothesis import strategies as st

from creditscope.errors import CreditscopeError
from creditscope.record import Record, RecordWriter, load_records, read_record, stored_record
from creditscope.record.locks import BUSY
from creditscope.record.schema import Angles, Cosines, Counts, Shares, Sizes, TapMeasures, WeightMeasures

TESTS = Path(__file__).parents[1]


def in_text(name: str, change: Callable[[str], str]) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(change((folder / name).read_text()))


def in_json(name: str, **values: Any) -> Callable[[Path], Any]:
    return in_text(name, lambda text: json.dumps(json.loads(text) | values))


truncate_last_line = in_text("snapshots.jsonl", lambda text: text[:-100])
edit_spec = in_json("spec.json", lr=0.5)
DAMAGES = {
    "truncated line": (truncate_last_line, "cannot be read"),
    "lost last snapshot": (
        in_text("snapshots.jsonl", lambda text: text.splitlines(keepends=True)[0]),
        "Expected snapshots to epoch 1, but the last is 0",
    ),
    "other version": (in_json("provenance.json", schema_version=99), "Expected schema version 2 or 3, but got 99"),
    "edited spec": (edit_spec, "Expected a spec with the hash in its name, but got [0-9a-f]{12}. It was edited"),
    "missing snapshots": (lambda folder: (folder / "snapshots.jsonl").unlink(), "No such file"),
    "missing provenance": (
        lambda folder: (folder / "provenance.json").unlink(),
        "is incomplete: its run was stopped",
    ),
    "empty provenance": (in_text("provenance.json", lambda _: ""), "cannot be read"),
    "provenance that is a list": (in_text("provenance.json", lambda _: "[]"), "cannot be read"),
    "binary spec": (lambda folder: (folder / "spec.json").write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "unfinished": (in_json("provenance.json", status="running"), "is incomplete"),
    "unknown status": (in_json("provenance.json", status="done"), "cannot be read"),
    "NaN in a snapshot": (
        in_text("snapshots.jsonl", lambda text: text.replace('"loss":0.9', '"loss":NaN')),
        "cannot be read",
    ),
}


def load(root: Path) -> tuple[list[Path | None], list[str]]:
    """Where the records that can be used lie, and what is said of the others."""
    problems: list[str] = []
    return [record.path for record in load_records(root, problems=problems)], problems


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["schema_version", "epoch"]), inner),
    max_leaves=4,
)


def test_a_finished_record_is_kept_beside_however_often_a_new_one_is_begun(tmp_path):
    record = make_record()
    folder = write_record(tmp_path, record)
    names = ("spec.json", "snapshots.jsonl", "provenance.json")
    whole = {name: (folder / name).read_bytes() for name in names}
    writer = RecordWriter(tmp_path, record.spec)
    with writer.open():
        for _ in range(2):  # the first was killed on its way
            writer.begin()
            writer.write_provenance(replace(record.provenance, status="running"))
            writer.append(record.snapshots[0])
            assert {name: (folder / f"{name}.before").read_bytes() for name in names} == whole
        writer.forget_before()
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


class TestRead:
    def test_what_is_written_is_read(self, tmp_path):
        record = make_record(rule="block_fa", rule_options={"x": 1, "y": 0.5, "z": "a", "on": True}, diverged=3)
        folder = write_record(tmp_path, record)
        assert read_record(folder) == replace(record, path=folder)
        assert folder.name == f"mnist1d-resmlp-block_fa-s42-{record.spec.digest()}"  # pyright: ignore

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_damaged_record_is_named_and_the_others_kept(self, tmp_path, damage):
        spoil, message = DAMAGES[damage]
        folders = [write_record(tmp_path, make_record(seed=s)) for s in (1, 2, 3)]
        spoil(folders[1])
        found, (problem,) = load(tmp_path)
        assert found == [folders[0], folders[2]]
        assert re.match(f"Record {folders[1].name} .*{message}", problem)

    def test_an_earlier_schema_is_read_and_what_it_lacks_was_not_measured(self, tmp_path):
        folder = unseal(write_record(tmp_path, make_record()))
        in_json("provenance.json", schema_version=2)(folder)
        joined = ("null_sd_F", "null_q99", "stage_cos", "rewind", "beta")
        lists = "|".join(f'"{name}":\\[[^]]*\\],?' for name in joined)
        in_text("snapshots.jsonl", lambda text: re.sub(lists, "", text))(folder)
        record = read_record(folder)
        assert record.provenance.schema_version == 2
        assert [getattr(record.last.taps, name) for name in joined] == [()] * 5
        assert record.last.taps.cos == make_record().last.taps.cos

    def test_without_a_list_what_cannot_be_read_is_raised_and_what_is_unfinished_left_out(self, tmp_path):
        folders = [write_record(tmp_path, make_record(seed=s)) for s in (1, 2)]
        DAMAGES["unfinished"][0](folders[1])
        assert [r.path for r in load_records(tmp_path)] == folders[:1]
        DAMAGES["provenance that is a list"][0](folders[1])
        with pytest.raises(CreditscopeError, match="cannot be read"):
            load_records(tmp_path)

    def test_a_folder_with_part_of_a_record_is_named(self, tmp_path):
        folder = write_record(tmp_path, make_record())
        (folder / "spec.json").unlink()
        (tmp_path / "notes.txt").write_text("no record")
        found, (problem,) = load(tmp_path)
        assert found == []
        assert folder.name in problem
        assert "spec.json" in problem

    def test_records_are_found_below(self, tmp_path):
        folders = [write_record(tmp_path / name / "records", make_record()) for name in "ab"]
        assert load(tmp_path) == (folders, [])

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(CreditscopeError, match="nowhere does not exist"):
            load_records(tmp_path / "nowhere", problems=[])

    @settings(max_examples=60, deadline=None)
    @given(
        st.binary(max_size=300) | ANY_JSON.map(lambda value: json.dumps(value).encode()),
        st.sampled_from(["spec.json", "provenance.json", "snapshots.jsonl"]),
    )
    def test_any_content_is_refused_by_name(self, found, name):
        with tempfile.TemporaryDirectory() as root:
            folder = write_record(Path(root), make_record())
            (folder / name).write_bytes(found)
            try:
                read_record(folder)
            except CreditscopeError as error:
                assert folder.name in str(error)  # noqa: PT017
            else:
                assert (name, found.strip()) == ("snapshots.jsonl", b"")


class TestStored:
    """What a run finds on record before it starts."""

    def find(self, root: Path, record: Record) -> tuple[Record | None, list[str]]:
        problems: list[str] = []
        assert record.spec is not None
        return stored_record(root, record.spec, problems=problems), problems

    def test_the_very_run(self, tmp_path):
        record = make_record()
        folder = write_record(tmp_path, record)
        assert self.find(tmp_path, record) == (replace(record, path=folder), [])
        assert self.find(tmp_path, make_record(seed=7)) == (None, [])

    @pytest.mark.parametrize("damage", ["truncated line", "other version", "missing snapshots", "binary spec"])
    def test_a_damaged_one_is_set_aside(self, tmp_path, damage):
        record = make_record()
        other = write_record(tmp_path, make_record(seed=7))
        folder = write_record(tmp_path, record)
        DAMAGES[damage][0](folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        found, (problem,) = self.find(tmp_path, record)
        aside = tmp_path / f"damaged-0-{folder.name}"
        assert found is None
        assert problem.startswith(f"Record {folder.name} cannot be read")
        assert problem.endswith(f"Set aside as {aside.name}.")
        kept = {path.name.removesuffix(".damaged"): path.read_bytes() for path in aside.iterdir()}
        assert kept == before  # nothing of it is lost
        assert not folder.exists()
        assert load(tmp_path) == ([other], [])  # what was set aside is not complained about again

    def test_two_damaged_ones_do_not_overwrite_each_other(self, tmp_path):
        for _ in range(2):
            truncate_last_line(write_record(tmp_path, make_record()))
            self.find(tmp_path, make_record())
        assert sorted(path.name[:10] for path in tmp_path.iterdir()) == ["damaged-0-", "damaged-1-"]

    @pytest.mark.parametrize("held", [False, True])
    def test_an_unfinished_one_is_run_again(self, tmp_path, held):
        """The last line of one that is being written may be half there: that is no damage, and its writer goes on."""
        record = make_record(status="running")
        folder = write_record(tmp_path, record)
        with RecordWriter(tmp_path, record.spec).open() if held else nullcontext():
            truncate_last_line(folder)
            assert self.find(tmp_path, record) == (None, [])
            assert folder.exists()

    def test_a_damaged_one_that_is_being_written_is_left_alone(self, tmp_path):
        record = make_record()
        folder = write_record(tmp_path, record)
        truncate_last_line(folder)
        with RecordWriter(tmp_path, record.spec).open():
            assert self.find(tmp_path, record) == (None, [])
            assert folder.exists()
        assert "Set aside as" in self.find(tmp_path, record)[1][0]


class TestWrite:
    def test_another_spec_is_refused_and_kept(self, tmp_path):
        record = make_record()
        folder = write_record(tmp_path, record)
        edit_spec(folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert stored_record(tmp_path, record.spec, problems=[]) is None  # pyright: ignore
        with pytest.raises(CreditscopeError, match="another spec"):
            write_record(tmp_path, record)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    def test_a_lock_that_its_holder_removed_meanwhile_is_taken_anew(self, tmp_path, monkeypatch):
        """Another process ended between our opening and our locking it; a third must not lock it beside us."""
        fcntl = pytest.importorskip("fcntl")
        writer, lock, calls = RecordWriter(tmp_path, make_spec()), fcntl.flock, []

        def flock(file, operation):
            calls.append(file)
            if len(calls) == 1:
                (writer.folder / "lock").unlink()
            lock(file, operation)

        monkeypatch.setattr(fcntl, "flock", flock)
        with writer.open():
            assert len(calls) == 2
            with pytest.raises(CreditscopeError, match=BUSY), RecordWriter(tmp_path, make_spec()).open():
                pass
        assert not (writer.folder / "lock").exists()  # it goes with its holder

    def test_a_second_writer_in_another_process_is_refused(self, tmp_path):
        code = f"from pathlib import Path; from builders import *; write_record(Path({str(tmp_path)!r}), make_record())"
        command = [sys.executable, "-c", code]
        writer = RecordWriter(tmp_path, make_spec(seed=42))
        with writer.open():
            writer.begin()
            writer.append(make_snapshot(epoch=77))
            second = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
            assert f"{writer.folder.name} to be free, but {BUSY}" in second.stderr
            assert json.loads((writer.folder / "snapshots.jsonl").read_text())["epoch"] == 77
        assert subprocess.run(command, cwd=TESTS, capture_output=True, text=True).returncode == 0
        assert read_record(writer.folder).last.epoch == 1

    def test_a_snapshot_that_is_no_number_is_not_written(self, tmp_path):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_record(tmp_path, make_record(snapshots=[make_snapshot(loss=float("nan"))]))


NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False)
ROWS = 2**40
RANGES = {Sizes: (0, None), Cosines: (-1, 1), Shares: (0, 1), Angles: (0, 180)}


def values_of(kind: type, count: int) -> st.SearchStrategy[dict[str, tuple]]:
    """Any values for each field in its range: counts where the schema says counts, numbers or None elsewhere."""

    def values(field) -> st.SearchStrategy:
        if field.type == Counts:
            return st.integers(0, ROWS)
        if field.name.startswith(("step_all", "step_under", "changed")):
            return st.none() | st.integers(0, ROWS)
        least, most = RANGES.get(field.type, (None, None))
        return st.none() | st.floats(least, most, allow_nan=False, allow_infinity=False)

    return st.fixed_dictionaries({f.name: st.tuples(*[values(f)] * count) for f in fields(kind)})


SHARE = st.none() | st.floats(0, 1)
SNAPSHOTS = st.builds(
    lambda taps, weights, **others: replace(
        make_snapshot(rows=ROWS, **others),
        taps=make_taps(5, **taps),
        weights=make_weights(2, **weights) if weights else None,
    ),
    taps=values_of(TapMeasures, 5),
    weights=st.none() | values_of(WeightMeasures, 2),
    loss=NUMBER,
    accuracy=SHARE,
    gamma=st.none() | st.floats(-1, 1),
    correct=st.none() | st.binary().map(lambda bits: base64.b64encode(bits).decode()),
    notes=st.lists(st.text(), max_size=3).map(tuple),
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(SNAPSHOTS, min_size=1, max_size=3))
def test_any_numbers_survive_exactly(snapshots):
    snapshots = [replace(s, epoch=epoch) for epoch, s in enumerate(snapshots)]
    with tempfile.TemporaryDirectory() as root:
        found = read_record(write_record(Path(root), make_record(snapshots=snapshots, epochs=9, status="diverged")))
    assert found.snapshots == tuple(snapshots)
    assert repr(found.snapshots) == repr(tuple(snapshots))  # −0.0 stays −0.0, an int an int
