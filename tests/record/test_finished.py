"""Finished runs in one file: the same bytes, found as before, and nothing lost or doubled whenever it ends."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from builders import make_family, make_record, unseal, write_record, write_records

from creditscope.auditing import audit
from creditscope.errors import CreditscopeError
from creditscope.record import bundle_finished, finished, load_records, open_records, read_record, stored_record
from creditscope.record.finished import bundle_if_many, read_weights, runs_path
from creditscope.record.locks import locked
from creditscope.record.spec import RunSpec
from creditscope.record.store import WEIGHTS, RecordWriter


def files_of(root: Path) -> dict[str, bytes]:
    """Everything under a root, in folders or bundles, by run and name."""
    found = {f"{p.parent.name}/{p.name}": p.read_bytes() for p in root.glob("[!.]*/*") if p.is_file()}
    for path in root.glob("*.runs.zip"):
        with zipfile.ZipFile(path) as bundle:
            found |= {name: bundle.read(name) for name in bundle.namelist()}
    return found


def with_weights(folder: Path, content: bytes) -> Path:
    """Seal the record once more, with weights."""
    record = read_record(folder)
    (folder / WEIGHTS).write_bytes(content)
    assert record.spec is not None
    RecordWriter(folder.parent, record.spec).write_provenance(record.provenance)
    return folder


def spec_of(seed: int) -> RunSpec:
    spec = make_record(seed=seed).spec
    assert spec is not None
    return spec


@pytest.fixture
def root(tmp_path) -> Path:
    return write_records(tmp_path / "records", {r.name: r for r in make_family()}.values())


class TestBytes:
    def test_all_files_are_there_byte_for_byte_and_folders_are_gone(self, root):
        for folder in sorted(root.iterdir())[:4]:
            with_weights(folder, os.urandom(3000))
        before, words = files_of(root), [m.verdict for m in audit(root).methods]
        written = bundle_finished(root)
        assert files_of(root) == before
        assert sorted(root.iterdir()) == sorted(written)
        assert len(written) == 4  # DFA, BP, and their frozen twins, three seeds each
        assert [m.verdict for m in audit(root).methods] == words

    def test_records_are_the_same_wherever_they_are_read_from(self, root):
        before = {r.name: (r.spec, r.provenance, r.snapshots) for r in load_records(root)}
        bundle_finished(root)
        for found in (load_records(root), [r for path in root.iterdir() for r in load_records(path)]):
            assert {r.name: (r.spec, r.provenance, r.snapshots) for r in found} == before
            assert all(r.path in root.iterdir() for r in found)
        assert {r.name: (r.spec, r.provenance, tuple(r.snapshots)) for r in open_records(root)} == before

    def test_more_seeds_join_the_file_and_the_same_runs_are_the_same_bytes(self, root, tmp_path):
        bundle_finished(root)
        write_record(root, make_record(seed=9))
        (path,) = bundle_finished(root)
        assert sorted(r.spec.seed for r in load_records(path) if r.spec) == [1, 2, 3, 9]
        with zipfile.ZipFile(path) as bundle:
            bundle.extractall(tmp_path / "again")
        folders = [p.name for p in (tmp_path / "again").iterdir()]
        (other,) = bundle_finished(tmp_path / "again")
        assert (len(folders), other.name, other.stat().st_size) == (4, path.name, path.stat().st_size)
        assert bundle_finished(root) == []

    def test_a_run_that_was_trained_anew_replaces_the_one_before(self, root):
        bundle_finished(root)
        write_record(root, make_record(seed=1, accuracy=0.25))
        for _ in range(2):
            assert [r.last.accuracy for r in load_records(root) if r.spec == spec_of(1)] == [0.25]
            bundle_finished(root)

    def test_weights_are_read_from_either_and_altered_ones_refused(self, root):
        folder = with_weights(next(root.iterdir()), b"weights")
        before = read_record(folder)
        assert read_weights(before) == b"weights"
        bundle_finished(root)
        (record,) = [r for r in load_records(root) if r.spec == before.spec]
        assert read_weights(record) == b"weights"
        assert read_weights(next(r for r in load_records(root) if r.spec != before.spec)) is None
        assert record.path is not None
        with zipfile.ZipFile(record.path) as bundle:
            bundle.extractall(root, [n for n in bundle.namelist() if n.startswith(folder.name)])
        (folder / WEIGHTS).write_bytes(b"altered")
        with pytest.raises(CreditscopeError, match=WEIGHTS):
            read_weights(read_record(folder))


class TestLeft:
    def test_what_is_not_finished_locked_damaged_or_more_than_a_record(self, root):
        running = write_record(root, make_record(seed=7, status="running"))
        edited, more, held = (write_record(root, make_record(seed=s)) for s in (8, 9, 10))
        (edited / "snapshots.jsonl").write_text((edited / "snapshots.jsonl").read_text().replace("0.7", "0.8"))
        (more / "notes.txt").write_text("mine")
        old = unseal(write_record(root, make_record(seed=11)))
        with locked(held / "lock"):
            before = files_of(root)
            bundle_finished(root)
            assert {p.name for p in root.iterdir() if p.is_dir()} == {p.name for p in (running, edited, more, held)}
            assert files_of(root) == before
        assert not old.exists()
        bundle_finished(root)
        assert not held.exists()

    def test_a_damaged_bundle_is_named_and_neither_added_to_nor_replaced(self, root):
        bundle_finished(root)
        path = runs_path(root, spec_of(9))
        path.write_bytes(path.read_bytes()[:-30])
        spoilt, folder, problems = path.read_bytes(), write_record(root, make_record(seed=9)), []
        assert bundle_finished(root) == []
        assert (path.read_bytes(), folder.exists()) == (spoilt, True)
        assert len(load_records(root, problems=problems)) == 3 * 3 + 1
        assert [path.name in problem for problem in problems] == [True]
        with pytest.raises(CreditscopeError, match=re.escape(path.name)):
            load_records(path)

    def test_an_altered_byte_is_noticed_or_changes_nothing(self, tmp_path):
        write_record(tmp_path, make_record())
        (path,) = bundle_finished(tmp_path)
        whole, before, rng, refused = path.read_bytes(), load_records(tmp_path), random.Random(0), 0
        for _ in range(300):
            raw, problems = bytearray(whole), []
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            path.write_bytes(raw)
            found = load_records(tmp_path, problems=problems)
            assert found == before or (found == [] and problems)
            refused += not found
        assert refused > 200


class TestStored:
    def test_a_run_in_a_bundle_is_finished(self, root):
        problems: list[str] = []
        before = stored_record(root, spec_of(2), problems=problems)
        bundle_finished(root)
        after = stored_record(root, spec_of(2), problems=problems)
        assert before is not None
        assert after is not None
        assert (after.snapshots, after.provenance) == (before.snapshots, before.provenance)
        assert after.path == runs_path(root, spec_of(2))
        assert stored_record(root, spec_of(99), problems=problems) is None
        assert problems == []

    def test_a_damaged_one_is_named_and_trained_again(self, root):
        problems: list[str] = []
        bundle_finished(root)
        runs_path(root, spec_of(2)).write_bytes(b"PK")
        assert stored_record(root, spec_of(2), problems=problems) is None
        assert len(problems) == 1

    def test_few_folders_are_left_alone(self, root, monkeypatch):
        assert bundle_if_many(root) == []
        monkeypatch.setattr(finished, "MOST_FOLDERS", 11)
        assert len(bundle_if_many(root)) == 4
        assert bundle_if_many(root / "absent") == []


KILLED = """
import os, sys
from pathlib import Path
from creditscope.record import finished
left = int(sys.argv[2])
def counted(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*arguments, **options)
    return call
for name in ("replace", "fsync", "rename", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
finished._add = counted(finished._add)
finished.bundle_finished(Path(sys.argv[1]))
"""
"""Ends before its n-th step on the disk."""
ANY_MOMENT = """
import sys
from pathlib import Path
from creditscope.record import bundle_finished
print(flush=True)
bundle_finished(Path(sys.argv[1]))
"""


@pytest.mark.slow
class TestKilled:
    def check(self, root: Path, before: dict[str, bytes]) -> None:
        """Nothing is lost or doubled, and nobody is told of anything."""
        problems: list[str] = []
        names = sorted(r.name for r in load_records(root, problems=problems))
        assert (names, problems) == (sorted({name.split("/")[0] for name in before}), [])
        assert {n: c for n, c in files_of(root).items() if not n.endswith("/lock")} == before

    def test_before_every_step(self, tmp_path):
        step = 0
        for step in range(200):
            root = write_records(tmp_path / f"{step}", [make_record(seed=s) for s in (1, 2)])
            before = files_of(root)
            done = subprocess.run([sys.executable, "-c", KILLED, root, str(step)], stderr=subprocess.PIPE)
            assert done.returncode in (0, 9), done.stderr
            self.check(root, before)
            bundle_finished(root)
            self.check(root, before)
            assert [path.suffix for path in root.iterdir()] == [".zip"]
            if done.returncode == 0:
                break
        assert step > 10

    def test_at_any_moment(self, tmp_path):
        records = [make_record(seed=s, lr=lr) for lr in (0.1, 0.2, 0.3) for s in range(8)]
        for moment in range(8):
            root = write_records(tmp_path / f"{moment}", records)
            before = files_of(root)
            process = subprocess.Popen([sys.executable, "-c", ANY_MOMENT, root], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.01 * moment)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            self.check(root, before)
            bundle_finished(root)
            self.check(root, before)
            assert [path.suffix for path in root.iterdir()] == [".zip"] * 3


def test_the_command(call, root):
    code, out, _ = call("bundle", root)
    assert (code, len(out.splitlines()), out.count("3 runs")) == (0, 4, 4)
    assert call("bundle", root)[1].startswith("nothing")
    assert call("bundle", root / "absent")[0] == 2
    assert len(json.loads(call("audit", root, "--json")[1])["methods"]) == 2
