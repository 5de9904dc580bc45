"""Values out of range, files that are none, and more than there should be are refused by name at the file's edge."""

import json
import lzma
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from builders import make_record, make_spec, run_python, unseal, write_record

from creditscope.auditing import audit
from creditscope.errors import CreditscopeError
from creditscope.record import LayerMeasures, TapMeasures, WeightMeasures, load_records, read_bundle, write_bundle
from creditscope.record.files import check, parse, read_file
from creditscope.record.schema import Facts, Series
from creditscope.record.spec import LARGEST, check_numbers

SPEC, SNAPSHOTS, PROVENANCE = "spec.json", "snapshots.jsonl", "provenance.json"
EPOCHS = 3


def edit(path: Path, change: Callable[[list[Any]], Any]) -> None:
    """Change the parsed lines of a file, in place."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.name == SNAPSHOTS else None
    whole = lines if lines is not None else [json.loads(path.read_text())]
    change(whole)
    path.write_text("".join(json.dumps(line) + "\n" for line in whole))


def put(place: str, value: Any) -> Callable[[list[Any]], None]:
    """Put a value in the first line at a place such as `taps.cos.0`; numbers are indices."""
    *way, last = [int(word) if word.isdigit() else word for word in place.split(".")]

    def change(lines: list[Any]) -> None:
        holder: Any = lines[0]
        for word in way:
            holder = holder[word]
        holder[last] = value

    return change


def double(lines: list[Any]) -> None:
    lines.insert(1, lines[1])


def swap(lines: list[Any]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


REFUSED: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "negative norm": (SNAPSHOTS, put("taps.h_norm.0", -1.0)),
    "negative step norm": (SNAPSHOTS, put("weights.step_norm.0", -1.0)),
    "cosine above 1": (SNAPSHOTS, put("taps.cos.2", 1.5)),
    "cosine of a weight below -1": (SNAPSHOTS, put("weights.update_cos.0", -1.5)),
    "angle above 180": (SNAPSHOTS, put("taps.angle.0", 181.0)),
    "accuracy above 1": (SNAPSHOTS, put("accuracy", 1.5)),
    "probe below 0": (SNAPSHOTS, put("taps.probe.0", -0.5)),
    "more rows used than there are": (SNAPSHOTS, put("taps.rows_used.0", 1001)),
    "more rows covered than there are": (SNAPSHOTS, put("rows_covered", 1001)),
    "negative count": (SNAPSHOTS, put("step", -1)),
    "float for a count": (SNAPSHOTS, put("rows", 1000.0)),
    "text that says nan": (SNAPSHOTS, put("loss", "nan")),
    "no cosines": (SNAPSHOTS, put("taps.cos", [])),
    "unknown key of a snapshot": (SNAPSHOTS, put("taps.cosine", [0.5] * 5)),
    "snapshot lost": (SNAPSHOTS, lambda lines: lines.pop(1)),
    "first snapshot lost": (SNAPSHOTS, lambda lines: lines.pop(0)),
    "snapshot twice": (SNAPSHOTS, double),
    "snapshots out of order": (SNAPSHOTS, swap),
    "bits that are none": (SNAPSHOTS, put("correct", "x")),
    "exact tap that is none": (PROVENANCE, put("facts.exact_taps", [99])),
    "exact tap twice": (PROVENANCE, put("facts.exact_taps", [1, 1])),
    "weight of no stage": (PROVENANCE, put("facts.weights.0.stage", 99)),
    "chance above 1": (PROVENANCE, put("facts.chance", 2.0)),
    "too few shapes": (PROVENANCE, put("facts.tap_shapes", [[8]])),
    "no taps": (PROVENANCE, put("facts.taps", [])),
    "negative seconds": (PROVENANCE, put("seconds", -1.0)),
    "unknown key of the provenance": (PROVENANCE, put("another", 1)),
    "unknown key of the spec": (SPEC, put("another", 1)),
    "negative epochs": (SPEC, put("epochs", -3)),
}


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """Two records of an earlier version, without digests that would tell."""
    return [unseal(write_record(tmp_path, make_record(seed=s, epochs=EPOCHS))) for s in (1, 2)]


def read_one(root: Path) -> tuple[list[str], str]:
    """Names that could be read, and the one problem beside the word on digests."""
    problems: list[str] = []
    names = [record.name for record in load_records(root, problems=problems)]
    (problem,) = [p for p in problems if "without digests" not in p]
    return names, problem


@pytest.mark.parametrize("fault", REFUSED)
def test_what_cannot_be_is_refused_by_name_and_the_others_are_judged(folders, fault):
    name, change = REFUSED[fault]
    edit(folders[0] / name, change)
    names, problem = read_one(folders[0].parent)
    assert names == [folders[1].name]
    assert folders[0].name in problem
    assert len(audit(folders[0].parent).methods) == 1


@pytest.mark.parametrize("number", ["1e400", "NaN", "-Infinity"])
def test_numbers_that_are_none(folders, number):
    path = folders[0] / SNAPSHOTS
    path.write_text(path.read_text().replace('"loss":0.9', f'"loss":{number}', 1))
    names, problem = read_one(folders[0].parent)
    assert names == [folders[1].name]
    assert "loss" in problem


@pytest.mark.parametrize("name", [SPEC, SNAPSHOTS, PROVENANCE])
@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_deep_nesting(folders, name, bracket):
    (folders[0] / name).write_text(bracket * 10_000)
    names, problem = read_one(folders[0].parent)
    assert names == [folders[1].name]
    assert folders[0].name in problem


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
@pytest.mark.parametrize("name", [SPEC, SNAPSHOTS, PROVENANCE, "some.jsonl.xz"])
@pytest.mark.parametrize("kind", ["FIFO", "device", "folder"])
def test_only_regular_files_are_read(folders, name, kind):
    path = folders[0] / name
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    names, problem = read_one(folders[0].parent)
    assert names == [f.name for f in folders[name != "some.jsonl.xz" :]]
    assert folders[0].name in problem


def test_a_file_that_is_too_large(tmp_path):
    path = tmp_path / "much"
    with open(path, "wb") as file:
        file.truncate(2**40)  # takes no room
    with pytest.raises(CreditscopeError, match="at most 1000 bytes"):
        read_file(path, most=1000)
    assert read_file(Path(__file__), most=2**20) == Path(__file__).read_bytes()


def test_a_record_may_be_as_precise_as_float32(folders):
    """Cosines are never clamped: rounding may carry them past 1."""
    edit(folders[0] / SNAPSHOTS, put("taps.cos.0", 1.0000002))
    assert [r.name for r in load_records(folders[0].parent)] == [f.name for f in folders]


def test_every_size_has_a_range():
    """What may be any number is listed here: a field that comes later is thought about."""
    free = [f.name for kind in (TapMeasures, WeightMeasures, LayerMeasures) for f in fields(kind) if f.type == Series]
    assert sorted(free) == ["beta", "decrease_share", "z", "z"]


def test_the_last_of_two_keys_counts_for_values_and_digests():
    assert parse(b'{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(CreditscopeError, match="taps"):
        check(Facts, {"taps": 1})


FILLINGS = {
    "snapshots that are none": ('"snapshots":', b"[" + b"0," * 1_500_000 + b"0]}"),
    "options that are none": ('"net_options":', b"{" + b'"a":[],' * 400_000 + b'"a":0}}}'),
    "unknown keys": ('"snapshots":', b"[]" + b',"a":0' * 500_000 + b"}"),
}
PEAK = """
import resource, sys
from pathlib import Path
from creditscope.record import read_bundle
read_bundle(Path(sys.argv[1]), problems=[])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class TestBundles:
    def read(self, path: Path) -> tuple[int, list[str]]:
        problems: list[str] = []
        return len(read_bundle(path, problems=problems)), problems

    @pytest.fixture
    def lines(self, tmp_path) -> list[bytes]:
        write_bundle([make_record(seed=s) for s in (1, 2)], tmp_path / "whole.jsonl.xz")
        return lzma.decompress((tmp_path / "whole.jsonl.xz").read_bytes()).splitlines(keepends=True)

    @pytest.mark.parametrize("many", [b"\n" * 10**6, b"\n", b"x\n" * 500])
    def test_lines_beyond_the_runs_are_not_read(self, tmp_path, lines, many):
        path = tmp_path / "a.jsonl.xz"
        path.write_bytes(lzma.compress(b"".join(lines) + many))
        found, (problem,) = self.read(path)
        assert (found, "2 runs, but got more" in problem) == (2, True)

    def test_not_every_line_is_named(self, tmp_path, lines):
        header = json.loads(lines[0]) | {"runs": 10**6}
        path = tmp_path / "a.jsonl.xz"
        path.write_bytes(lzma.compress(json.dumps(header).encode() + b"\n" * 10**6))
        found, problems = self.read(path)
        assert (found, len(problems)) == (0, 101)

    def test_a_run_that_is_there_twice(self, tmp_path, lines):
        path = tmp_path / "a.jsonl.xz"
        path.write_bytes(lzma.compress(b"".join([lines[0], lines[1], lines[1]])))
        found, (problem,) = self.read(path)
        assert found == 1
        assert "once" in problem

    def test_a_dictionary_that_needs_much_memory(self, tmp_path, lines):
        path = tmp_path / "a.jsonl.xz"
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**29}]
        path.write_bytes(lzma.compress(b"".join(lines), filters=filters))
        found, (problem,) = self.read(path)
        assert found == 0
        assert str(path) in problem

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform != "linux", reason="peaks are told in KiB there")
    @pytest.mark.parametrize("filling", FILLINGS)
    def test_a_small_file_does_not_fill_the_memory(self, tmp_path, lines, filling):
        """A few hundred bytes with a million faults in them, each of which could be described."""
        path = tmp_path / "a.jsonl.xz"
        start, inside = FILLINGS[filling]
        text = lines[1][: lines[1].index(start.encode())] + start.encode() + inside
        path.write_bytes(lzma.compress(lines[0] + text))
        assert path.stat().st_size < 4000
        small, large = (int(run_python("-c", PEAK, p)) for p in (tmp_path / "whole.jsonl.xz", path))
        assert large - small < 150 * 1024  # KiB


class TestNumbersOfASpec:
    """Beyond 2^53 a number is another one once it was a float; no run shall start with it."""

    @pytest.mark.parametrize(
        "given",
        [
            {"seed": LARGEST + 1},
            {"seed": -LARGEST - 1},
            {"snapshot_every": 12345678901234567890},
            {"epochs": LARGEST + 1},
            {"batch": 10**400},
            {"net_options": {"width": 2**60}},
            {"task_options": {"rows": 2**60}},
            {"rule_options": {"gain": float("inf")}},
        ],
    )
    def test_refused(self, given):
        with pytest.raises(CreditscopeError, match=r"2\^53|finite"):
            check_numbers(make_spec(**given))

    def test_the_largest_is_taken_and_read_back(self, tmp_path):
        record = make_record(seed=LARGEST)
        check_numbers(make_spec(seed=LARGEST, net_options={"gain": 1e300}))
        write_record(tmp_path, record)
        assert [r.spec.seed for r in load_records(tmp_path) if r.spec] == [LARGEST]

    @pytest.mark.parametrize(
        "words", [("--seeds", "12345678901234567890,"), ("--snapshot-every", "12345678901234567890")]
    )
    def test_on_the_command_line_before_training(self, call, tmp_path, words):
        code, _, err = call("run", "--task", "digits", *words, "--out", tmp_path / "out")
        assert code == 2
        assert "2^53" in err
        assert not (tmp_path / "out").exists()

    def test_a_number_of_seeds_that_nobody_trains(self, refused, tmp_path):
        assert "100000" in refused("run", "--seeds", "12345678901234567890", "--out", tmp_path / "out")
