"""Bundles: what is shipped says what the records said, to six digits; what is damaged is named, the rest kept."""

import gc
import json
import lzma
import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_family, make_record, make_snapshot, make_weights, write_record
from hypothesis import given
from hypothesis import strategies as st

from creditscope.auditing import audit
from creditscope.errors import CreditscopeError
from creditscope.record import Record, bundle, load, load_records, read_bundle, write_bundle
from creditscope.record.bundle import rounded, thin
from creditscope.record.schema import SCHEMA_VERSION

THINNED = [*range(17), *range(18, 33, 2), *range(36, 65, 4), *range(72, 97, 8), 100]


def every_epoch(seed: int, *, epochs: int = 100, **others: Any) -> Record:
    snapshots = [make_snapshot(epoch=e, correct="AAAA", loss=1 / (e + 3)) for e in range(epochs + 1)]
    return make_record(seed=seed, epochs=epochs, snapshots=snapshots, **others)


def leaves(value: Any) -> list:
    """What is in nested containers."""
    if isinstance(value, dict | list | tuple):
        return [leaf for inner in (value.values() if isinstance(value, dict) else value) for leaf in leaves(inner)]
    return [value]


def lines_of(path: Path) -> list[bytes]:
    return lzma.decompress(path.read_bytes()).splitlines(keepends=True)


class TestRoundTrip:
    def test_what_is_written_is_read_to_six_digits(self, tmp_path):
        awkward = make_snapshot(
            loss=math.pi * 1e-30,
            gamma=-0.0,
            taps={"z": (1 / 3, None, -2e300, 5e-324, 123456789.0), "h_rms": (1.0, 0.1234565, 1e22, 0.0, 7.0)},
            weights=make_weights(step_all_zero=(None, 2)),
            notes=("a note with 1.23456789 in it",),
        )
        options = {"gain": 2**0.5, "depth": 4, "on": True, "name": "x"}
        record = make_record(net_options=options, diverged=3, snapshots=[make_snapshot(epoch=0), awkward], lr=1 / 3)
        assert write_bundle([record], tmp_path / "a.jsonl.xz") == (tmp_path / "a.jsonl.xz").stat().st_size
        (found,) = load_records(tmp_path)
        assert (found.spec, found.path) == (record.spec, tmp_path / "a.jsonl.xz")  # its floats are part of its hash
        assert found.provenance == record.provenance
        before, after = (leaves([asdict(s) for s in r.snapshots]) for r in (record, found))
        for was, now in zip(before, after, strict=True):
            if isinstance(was, float):
                assert math.isclose(was, now, rel_tol=5.1e-6)
                assert (was == 0, math.copysign(1, was)) == (now == 0, math.copysign(1, now))
                assert float(np.format_float_scientific(was, precision=5)) == now
            else:
                assert was == now

    @given(st.floats(allow_nan=False, allow_infinity=False, max_value=1e307, min_value=-1e307))
    def test_rounding_keeps_zero_sign_and_order(self, x):
        found = rounded(x, 6)
        assert (found == 0) == (x == 0)
        assert found * x >= 0
        assert rounded(found, 6) == found
        assert abs(found - x) <= 5.1e-6 * abs(x) or abs(x) < 1e-300
        assert rounded([x, math.nextafter(x, math.inf)], 6) == sorted(rounded([x, math.nextafter(x, math.inf)], 6))

    def test_snapshots_are_thinned_but_for_some_seeds_and_the_file_says_so(self, tmp_path):
        records = [every_epoch(42), every_epoch(7), every_epoch(8, epochs=7)]
        write_bundle(records, tmp_path / "a.jsonl.xz")
        whole, thinned, short = load_records(tmp_path)
        assert [s.epoch for s in whole.snapshots] == list(range(101))
        assert [s.epoch for s in thinned.snapshots] == THINNED
        assert [s.epoch for s in short.snapshots] == list(range(8))  # the last is kept, whatever it is
        for found in (whole, thinned):
            assert [s.epoch for s in found.snapshots if s.weights] == [0, 1, 2, 4, 8, 16, 32, 64, 100]
            assert [s.epoch for s in found.snapshots if s.correct] == [100]
        header, *lines = [json.loads(line) for line in lines_of(tmp_path / "a.jsonl.xz")]
        assert len(header.pop("seal")) == 64
        assert header == {
            "format": "creditscope bundle",
            "schema_version": SCHEMA_VERSION,
            "runs": 3,
            "digits": 6,
            "every_epoch": [42, 123, 456],
        }
        assert [line["left_out"] for line in lines] == [0, 101 - len(THINNED), 0]
        assert lines[0]["snapshots"][0]["loss"] == 0.333333

    def test_packing_again_adds_to_what_was_left_out(self, tmp_path, monkeypatch):
        def pack(records: list[Record]) -> tuple[list[Record], list[int]]:
            write_bundle(records, tmp_path / "a.jsonl.xz")
            found = load_records(tmp_path)
            return found, [record.left_out for record in found]

        thinned = 101 - len(THINNED)
        assert every_epoch(7).left_out == 0
        again, left_out = pack([every_epoch(42), every_epoch(7)])
        assert left_out == pack(again)[1] == [0, thinned]
        monkeypatch.setattr(bundle, "EVERY_EPOCH", ())
        assert pack(again)[1] == [thinned, thinned]

    def test_one_snapshot_is_first_and_last(self):
        (kept,) = thin(make_record(snapshots=[make_snapshot(correct="AA==")]))
        assert (kept.correct, kept.weights is None) == ("AA==", False)

    @pytest.mark.slow
    def test_verdicts_are_the_same(self, tmp_path):
        """Of a method that passes and of one that does not, with numbers that have more digits than are kept."""
        rng = np.random.default_rng(0)

        def train_longer(record: Record) -> Record:
            assert record.spec is not None
            first, end = record.snapshots[0], replace(record.last, epoch=30)
            losses = rng.uniform(0.1, 1, size=30)
            before = [replace(first, epoch=e, loss=float(loss)) for e, loss in enumerate(losses)]
            return replace(record, spec=replace(record.spec, epochs=30), snapshots=(*before, end))

        families = make_family() + make_family("fa", taps={"h_rms": (1, 1, 60 + 1 / 3, 60, 60)})
        records = [train_longer(r) for r in {r.spec.digest(): r for r in families}.values()]
        for record in records:
            write_record(tmp_path / "folders", record)
        write_bundle(records, tmp_path / "bundles" / "a.jsonl.xz")
        before, after = (audit(tmp_path / kind) for kind in ("folders", "bundles"))
        assert sorted(m.verdict.word for m in before.methods) == ["trustworthy", "trustworthy", "walk back"]
        said = [[(m.method, m.verdict.word, m.verdict.codes) for m in found.methods] for found in (before, after)]
        assert said[0] == said[1]
        assert after.problems == ()

    def test_nothing_unfinished_is_bundled(self, tmp_path):
        with pytest.raises(CreditscopeError, match=r"finished runs.*mnist1d-resmlp-dfa"):
            write_bundle([make_record(), make_record(status="running")], tmp_path / "a.jsonl.xz")
        assert list(tmp_path.iterdir()) == []


class TestFind:
    def test_a_folder_wins_over_bundles_and_bundles_are_found_below(self, tmp_path):
        one, two, three = (make_record(seed=s) for s in (1, 2, 3))
        folder = write_record(tmp_path, one)
        write_bundle([one, two], tmp_path / "a" / "b" / "x.jsonl.xz")
        write_bundle([two, three], tmp_path / "a" / "y.jsonl.xz")
        found = load_records(tmp_path)
        x, y = tmp_path / "a" / "b" / "x.jsonl.xz", tmp_path / "a" / "y.jsonl.xz"
        assert [(r.spec.seed, r.path) for r in found if r.spec] == [(1, folder), (2, x), (3, y)]
        assert [r.spec.seed for r in load_records(y) if r.spec] == [2, 3]

    def test_records_of_one_bundle_are_told_apart(self, tmp_path):
        write_bundle(make_family(), tmp_path / "a.jsonl.xz")
        found = audit(tmp_path)
        cards = json.dumps(found.to_dict()) + " ".join(map(str, found.cards()))
        assert re.search(r"mnist1d-resmlp-dfa-s1-[0-9a-f]{12}", cards)

    @pytest.mark.parametrize("was_on", [True, False])
    def test_the_collector_is_left_as_it_was(self, was_on):
        (gc.enable if was_on else gc.disable)()
        try:
            with pytest.raises(ZeroDivisionError), load.collection_paused():
                print(1 / gc.isenabled())  # fails because it is off
            assert gc.isenabled() == was_on
        finally:
            gc.enable()


def rewrite(path: Path, lines: list[bytes]) -> None:
    with lzma.open(path, "wb") as file:
        file.writelines(lines)


def in_line(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Edit the second run."""

    def spoil(path: Path) -> None:
        lines = lines_of(path)
        changed = change(lines[2])
        assert changed != lines[2]
        rewrite(path, [*lines[:2], changed, *lines[3:]])

    return spoil


def in_text(old: str, new: str) -> Callable[[Path], None]:
    return in_line(lambda line: line.replace(old.encode(), new.encode(), 1))


def in_fields(**changes: Any) -> Callable[[Path], None]:
    return in_line(lambda line: json.dumps(json.loads(line) | changes).encode() + b"\n")


HASH = r"Expected a spec with the hash in its name, but got [0-9a-f]{12}. It was edited"
DAMAGED_LINES = {
    "half a line": (in_line(lambda line: line[:900] + b"\n"), "EOF while parsing|expected value|expected ident"),
    "no JSON": (in_line(lambda _: b"\xff\xfe\n"), "EOF while parsing|expected value|expected ident"),
    "deep nesting": (in_line(lambda _: b"[" * 100_000 + b"\n"), "recursion limit"),
    "empty line": (in_line(lambda _: b"\n"), "EOF while parsing|expected value|expected ident"),
    "a list": (in_line(lambda _: b"[]\n"), "Input should be a dictionary"),
    "edited spec": (in_text('"lr":0.001', '"lr":0.5'), HASH),
    "renamed": (in_fields(run="another"), HASH),
    "NaN": (in_text('"loss":0.9', '"loss":NaN'), "finite number"),
    "infinite": (in_text('"loss":0.9', '"loss":1e999'), "finite number"),
    "huge real": (in_text('"loss":0.9', f'"loss":1{"0" * 400}'), "valid number"),
    "huge count": (in_text('"rows":1000', f'"rows":1{"0" * 40}'), "rows .*less than or equal to 9007199254740992"),
    "negative count": (in_text('"rows_used":[1000', '"rows_used":[-1'), "rows_used.0 .*greater than or equal to 0"),
    "huge spec": (
        in_text('"batch":128', f'"batch":1{"0" * 40}'),
        "Expected batch to be at most",
    ),
    "text for a number": (in_text('"loss":0.9', '"loss":"0.9"'), "valid number"),
    "truth for a count": (in_text('"rows":1000', '"rows":true'), "valid integer"),
    "missing list": (in_text('"h_rms":', '"other":'), "Field required"),
    "short list": (in_text('"h_norm":[11.0,', '"h_norm":['), "Expected 5 taps and 2 weights in every list"),
    "no snapshots": (in_fields(snapshots=[]), "Expected snapshots to epoch 1, but the last is none"),
    "other version": (
        in_text(f'"schema_version":{SCHEMA_VERSION}', '"schema_version":99'),
        "Expected schema version 2 or 3, but got 99",
    ),
    "unfinished": (in_text('"status":"complete"', '"status":"running"'), "Expected a finished run"),
}


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-60] ^= 1  # past the data: the checksum, or what is checked by it
    path.write_bytes(raw)


DAMAGED_FILES = {
    "no xz": (lambda path: path.write_bytes(b"hello\n"), "cannot be read: Input format not supported by decoder"),
    "empty": (lambda path: path.write_bytes(b""), "is cut short: the 0 runs before the cut are read"),
    "nothing in it": (lambda path: rewrite(path, []), "Expected a header, but got an empty file"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be read: .*a regular file"),
    "another format": (lambda path: rewrite(path, [b'{"epochs":1}\n']), "Expected the header of a bundle"),
    "other version": (
        lambda path: rewrite(path, [lines_of(path)[0].replace(b'version": 3', b'version": 9'), *lines_of(path)[1:]]),
        "Expected schema version 2 or 3, but got 9. Read it with the creditscope that wrote it",
    ),
    "one bit changed": (flip, "cannot be read: Corrupt input data"),
    "endless line": (lambda path: rewrite(path, [b" " * 2**26]), "at most 200 times the file"),
}


class TestDamage:
    @pytest.fixture
    def bundle(self, tmp_path) -> Path:
        write_bundle([make_record(seed=s) for s in (1, 2, 3)], tmp_path / "bad.jsonl.xz")
        write_bundle([make_record(seed=9)], tmp_path / "good.jsonl.xz")
        return tmp_path / "bad.jsonl.xz"

    def seeds(self, path: Path) -> tuple[list[int], list[str]]:
        problems: list[str] = []
        return [r.spec.seed for r in load_records(path, problems=problems) if r.spec], problems

    @pytest.mark.parametrize("damage", DAMAGED_LINES)
    def test_a_damaged_line_is_named_and_the_others_kept(self, bundle, damage):
        spoil, message = DAMAGED_LINES[damage]
        spoil(bundle)
        found, (problem,) = self.seeds(bundle.parent)
        assert found == [1, 3, 9]
        assert re.search(message, problem)
        assert problem.startswith(("Record ", "Run 2 of "))
        assert "bad.jsonl.xz" in problem
        assert len(problem) < 500
        with pytest.raises(CreditscopeError, match=re.escape(problem[:60])):
            read_bundle(bundle)

    @pytest.mark.slow
    @pytest.mark.parametrize("damage", DAMAGED_FILES)
    def test_a_damaged_file_is_named_and_the_others_kept(self, bundle, damage):
        spoil, message = DAMAGED_FILES[damage]
        spoil(bundle)
        found, (problem,) = self.seeds(bundle.parent)
        assert found == [9]
        assert re.search(message, problem)
        assert "bad.jsonl.xz" in problem

    def test_a_file_cut_short_gives_what_came_before(self, tmp_path):
        rng = np.random.default_rng(0)
        snapshots = [[make_snapshot(epoch=e, correct=rng.bytes(2000).hex()) for e in (0, 1)] for _ in range(40)]
        records = [make_record(seed=seed, snapshots=own) for seed, own in enumerate(snapshots)]
        path = tmp_path / "a.jsonl.xz"
        write_bundle(records, path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        found, (problem,) = self.seeds(tmp_path)
        assert 5 < len(found) < 35
        assert found == list(range(len(found)))
        assert f"cut short: the {len(found)} " in problem

    def test_lines_that_are_gone_are_missed(self, bundle):
        rewrite(bundle, lines_of(bundle)[:-1])
        found, (problem,) = self.seeds(bundle)
        assert found == [1, 2]
        assert str(bundle) in problem
        assert "3 runs" in problem

    @given(st.binary(max_size=200), st.booleans())
    def test_any_content_is_refused_by_name(self, content, compressed):
        with tempfile.TemporaryDirectory() as root:
            path, problems = Path(root) / "a.jsonl.xz", []
            path.write_bytes(lzma.compress(content) if compressed else content)
            assert read_bundle(path, problems=problems) == []
            assert [str(path) in problem for problem in problems] == [True]
