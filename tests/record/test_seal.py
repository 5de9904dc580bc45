"""A finished record carries digests of its files, a bundle of its runs: what was altered is named and not used."""

import json
import lzma
import re
from pathlib import Path

import pytest
from builders import make_family, make_record, unseal, write_record, write_records
from test_load import lines_of, rewrite

from creditscope.auditing import audit
from creditscope.errors import CreditscopeError
from creditscope.record import (
    RecordWriter,
    load_records,
    read_bundle,
    read_record,
    run_folder,
    stored_record,
    write_bundle,
)
from creditscope.record.store import check_weights, write_watched

ROOT = Path(__file__).parents[2]


def lower(text: str) -> str:
    """Half of every accuracy: the form is kept, the verdict is not."""
    return re.sub(r'"accuracy":0\.7\d*', '"accuracy":0.35', text)


def verdicts(root: Path, **how) -> list[str]:
    return sorted(m.verdict.word for m in audit(root, **how).methods)


class TestFolder:
    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        return write_record(tmp_path, make_record())

    def test_digests_are_those_of_the_files(self, folder):
        import hashlib

        seal = json.loads((folder / "provenance.json").read_text())["seal"]
        files = {name: (folder / name).read_bytes() for name in ("spec.json", "snapshots.jsonl")}
        assert {name: seal[name] for name in files} == {n: hashlib.sha256(b).hexdigest() for n, b in files.items()}
        assert set(seal) == {*files, "provenance.json"}  # this one has no weights
        assert read_record(folder).seal == "fits"

    def test_a_run_that_is_not_finished_has_none(self, tmp_path):
        folder = write_record(tmp_path, make_record(status="running"))
        assert "seal" not in json.loads((folder / "provenance.json").read_text())

    @pytest.mark.parametrize(
        ("name", "old", "new"),
        [
            ("snapshots.jsonl", '"loss":0.9', '"loss":0.8'),
            ("provenance.json", '"chance": 0.1', '"chance": 0.2'),
            ("provenance.json", '"status": "complete"', '"status": "diverged"'),
            ("spec.json", ":", ": "),
        ],
    )
    def test_what_was_altered_is_named_and_read_only_on_demand(self, folder, name, old, new):
        path = folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        problems: list[str] = []
        assert load_records(folder.parent, problems=problems) == []
        assert len(problems) == 1
        assert folder.name in problems[0]
        assert name in problems[0]
        with pytest.raises(CreditscopeError, match="--unsealed"):
            load_records(folder.parent)
        (record,) = load_records(folder.parent, problems=problems, unsealed=True)
        assert record.seal == "broken"
        assert folder.name in problems[1]

    def test_white_space_and_order_of_the_provenance_do_not_matter(self, folder):
        path = folder / "provenance.json"
        raw = json.loads(path.read_text())
        path.write_text(json.dumps(dict(reversed(raw.items()))))
        assert read_record(folder).seal == "fits"

    @pytest.mark.parametrize("lost", ["spec.json", "snapshots.jsonl", "provenance.json"])
    def test_a_digest_that_is_not_there_does_not_fit(self, folder, lost):
        path = folder / "provenance.json"
        raw = json.loads(path.read_text())
        del raw["seal"][lost]
        path.write_text(json.dumps(raw))
        with pytest.raises(CreditscopeError, match=re.escape(lost)):
            read_record(folder)

    def test_an_altered_one_is_set_aside_and_trained_again(self, folder):
        path = folder / "snapshots.jsonl"
        path.write_text(lower(path.read_text()))
        problems: list[str] = []
        record = make_record()
        assert record.spec is not None
        assert stored_record(folder.parent, record.spec, problems=problems) is None
        assert "Set aside as damaged-0-" in problems[0]
        problems.clear()
        assert load_records(folder.parent, problems=problems) == problems == []

    def test_weights(self, tmp_path):
        record = make_record()
        assert record.spec is not None
        with RecordWriter(tmp_path, record.spec).open() as writer:
            writer.begin()
            for snapshot in record.snapshots:
                writer.append(snapshot)
            (writer.folder / "weights.safetensors").write_bytes(b"weights")
            writer.write_provenance(record.provenance)
        check_weights(writer.folder)
        (writer.folder / "weights.safetensors").write_bytes(b"weighty")
        assert read_record(writer.folder).seal == "fits"  # they are not read with it
        with pytest.raises(CreditscopeError, match=r"weights\.safetensors"):
            check_weights(writer.folder)
        check_weights(unseal(writer.folder))

    def test_a_watched_model(self, tmp_path):
        from dataclasses import replace

        record = make_record()
        watched = replace(record, spec=None, provenance=replace(record.provenance, engine="watch"))
        for _ in range(2):
            write_watched(tmp_path / "mine", watched)
        assert read_record(tmp_path / "mine").seal == "fits"
        path = tmp_path / "mine" / "snapshots.jsonl"
        path.write_text(lower(path.read_text()))
        with pytest.raises(CreditscopeError, match="mine"):
            read_record(tmp_path / "mine")


class TestVerdicts:
    def test_no_other_verdict_from_altered_records_unless_asked_for(self, tmp_path):
        write_records(tmp_path, make_family())
        before = verdicts(tmp_path)
        for path in tmp_path.glob("*-dfa-s*/snapshots.jsonl"):
            path.write_text(lower(path.read_text()))
        assert verdicts(tmp_path) == ["trustworthy"]  # of BP, which is all that is left
        assert verdicts(tmp_path, unsealed=True) != before

    def test_on_the_command_line(self, call, tmp_path):
        write_records(tmp_path, [make_record(seed=s) for s in (1, 2)])
        path = next(tmp_path.glob("*-s1-*/snapshots.jsonl"))
        path.write_text(lower(path.read_text()))
        code, out, _ = call("audit", tmp_path, "--json")
        found = json.loads(out)
        assert (code, found["methods"][0]["seeds"]) == (0, [2])
        assert [path.parent.name in problem for problem in found["problems"]] == [True]
        found = json.loads(call("audit", tmp_path, "--json", "--unsealed")[1])
        assert found["methods"][0]["seeds"] == [1, 2]
        page = tmp_path / "page.html"
        assert path.parent.name in call("report", tmp_path, "--out", page)[1]
        assert "read all the same" in call("report", tmp_path, "--out", page, "--unsealed")[1]


class TestEarlier:
    def test_one_word_for_all(self, tmp_path):
        for seed in (1, 2, 3):
            unseal(write_record(tmp_path, make_record(seed=seed)))
        problems: list[str] = []
        assert [r.seal for r in load_records(tmp_path, problems=problems)] == ["none"] * 3
        assert len(problems) == 1
        assert problems[0].startswith("3 records")
        assert len(load_records(tmp_path)) == 3  # without a list there is nobody to tell, and it is no error

    def test_what_is_shipped_is_read_with_a_word(self):
        problems: list[str] = []
        found = load_records(ROOT / "results" / "demo", problems=problems)
        assert len(found) > 20
        assert len(problems) == 1


class TestBundle:
    @pytest.fixture
    def bundle(self, tmp_path) -> Path:
        write_bundle([make_record(seed=s) for s in (1, 2, 3)], tmp_path / "a.jsonl.xz")
        return tmp_path / "a.jsonl.xz"

    def read(self, path: Path, **how) -> tuple[list[str], list[str]]:
        problems: list[str] = []
        return [r.seal for r in read_bundle(path, problems=problems, **how)], problems

    def test_whole(self, bundle):
        assert self.read(bundle) == (["fits"] * 3, [])

    def test_an_altered_run_is_named(self, bundle):
        lines = lines_of(bundle)
        lines[2] = lower(lines[2].decode()).encode()
        rewrite(bundle, lines)
        seals, (problem,) = self.read(bundle)
        assert seals == ["fits", "fits"]
        assert make_record(seed=2).name in problem
        assert self.read(bundle, unsealed=True) == (["fits", "broken", "fits"], [])

    def test_a_run_without_digest_among_those_with_one(self, bundle):
        lines = lines_of(bundle)
        lines[2] = re.sub(rb',"seal":"\w+"', b"", lines[2])
        rewrite(bundle, lines)
        seals, (problem,) = self.read(bundle)
        assert seals == ["fits", "fits"]
        assert make_record(seed=2).name in problem

    @pytest.mark.parametrize("kept", [[1, 3, 2], [1, 2]])
    def test_runs_that_were_swapped_or_left_out(self, bundle, kept):
        lines = lines_of(bundle)
        header = json.loads(lines[0]) | {"runs": len(kept)}
        rewrite(bundle, [json.dumps(header).encode() + b"\n", *(lines[i] for i in kept)])
        seals, (problem,) = self.read(bundle)
        assert seals == ["fits"] * len(kept)  # each is as it was written
        assert f"{bundle} is not whole" in problem

    def test_the_digest_of_the_header_cannot_be_left_out(self, bundle):
        lines = lines_of(bundle)
        header = {name: value for name, value in json.loads(lines[0]).items() if name != "seal"}
        rewrite(bundle, [json.dumps(header).encode() + b"\n", *lines[1:]])
        assert len(self.read(bundle)[1]) == 1

    def test_one_of_an_earlier_version(self, bundle):
        text = re.sub(rb', ?"seal": ?"\w+"', b"", lzma.decompress(bundle.read_bytes()))
        rewrite(bundle, [text])
        assert self.read(bundle) == (["none"] * 3, [])


class TestLeftOver:
    """A crash at the very end leaves the lock and the checkpoint beside a finished record."""

    LEFT = ("lock", "checkpoint.safetensors", "snapshots.jsonl.before")

    def leave(self, root: Path) -> Path:
        folder = write_record(root, make_record())
        for name in self.LEFT:
            (folder / name).write_text("left")
        return folder

    @pytest.mark.parametrize("by", ["audit", "run"])
    def test_it_is_cleared_when_the_record_is_read(self, tmp_path, by):
        folder, record = self.leave(tmp_path), make_record()
        assert record.spec is not None
        found = load_records(tmp_path) if by == "audit" else [stored_record(tmp_path, record.spec, problems=[])]
        assert found == [read_record(folder)]
        assert sorted(p.name for p in folder.iterdir()) == ["provenance.json", "snapshots.jsonl", "spec.json"]

    def test_not_while_a_writer_lives(self, tmp_path):
        record = make_record()
        assert record.spec is not None
        with RecordWriter(tmp_path, record.spec).open():
            folder = run_folder(tmp_path, record.spec)
        self.leave(tmp_path)
        with RecordWriter(tmp_path, record.spec).open():
            read_record(folder)
            assert all((folder / name).exists() for name in self.LEFT)

    def test_not_beside_a_run_that_is_not_finished(self, tmp_path):
        folder = write_record(tmp_path, make_record(status="running"))
        (folder / "checkpoint.safetensors").write_text("to go on from")
        load_records(tmp_path)
        read_record(folder)
        assert (folder / "checkpoint.safetensors").exists()

    def test_not_where_nothing_can_be_removed(self, tmp_path):
        folder = self.leave(tmp_path)
        folder.chmod(0o500)
        try:
            assert len(load_records(tmp_path)) == 1
        finally:
            folder.chmod(0o700)
