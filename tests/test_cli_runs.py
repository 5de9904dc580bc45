"""The command line on runs: which are asked for, which are there, where, and how they are drawn."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_family, make_record, make_wanted, write_record

from creditscope.commands.list import List
from creditscope.errors import UnknownNameError
from creditscope.paper.studies.audit_hero import audit_hero
from creditscope.plots._overview import latest_texts
from creditscope.record import load_records

TINY = ("--task", "digits", "--width", "8", "--depth", "1", "--epochs", "1", "--tier", "quick", "--jobs", "1")
ROOT = Path(__file__).parent.parent


class TestAsking:
    @pytest.mark.parametrize(
        ("words", "seeds"), [(("2",), (42, 123)), (("7,",), (7,)), (("7", "8"), (7, 8)), (("7,8",), (7, 8))]
    )
    def test_seeds_are_a_number_or_a_list_as_in_python(self, call, tmp_path, monkeypatch, words, seeds):
        asked = {}
        monkeypatch.setattr("creditscope.train.execute.run_all", lambda specs, *a, **k: asked.update(specs=specs) or [])
        call("run", *TINY, "--seeds", *words, "--out", tmp_path)
        assert tuple(spec.seed for spec in asked["specs"]) == seeds

    @pytest.mark.parametrize(
        ("words", "came"), [(["x"], "'x'"), (["1", "2.5"], "'1 2.5'"), ([], "got none"), ([","], "got none")]
    )
    def test_what_is_no_seed_is_refused(self, call, words, came):
        code, _, err = call("run", "--seeds", *words)
        assert (code, came in err) == (2, True)

    def test_several_rules_in_one_go_then_all_on_record(self, call, tmp_path):
        words = ("run", *TINY, "--rule", "bp", "dfa", "--seeds", "1", "--out", tmp_path, "--json")
        code, out, err = call(*words)
        assert [m["method"] for m in json.loads(out)["methods"]] == ["BP", "DFA"]
        assert (code, [int(n) for n in re.findall(r": (\d+)", err.splitlines()[0])]) == (0, [0, 2])
        code, again, err = call(*words)
        assert (code, again, [int(n) for n in re.findall(r": (\d+)", err)]) == (0, out, [2, 0])
        assert str(tmp_path / "records") in err

    def test_ctrl_c_says_that_begun_runs_go_on(self, call, monkeypatch):
        def stop(_: List) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(List, "run", stop)
        code, _, err = call("list")
        assert (code, "last checkpoint" in err) == (130, True)

    def test_version(self, call):
        code, out, _ = call("--version")
        assert (code, bool(re.fullmatch(r"creditscope \d+\.\d+\.\d+\n", out))) == (0, True)

    @pytest.mark.parametrize(
        "words", [("list", "nonsense"), ("run", "--wat", "1"), ("run", "--epochs", "x"), ("figure",)]
    )
    def test_what_cannot_be_read_is_refused_in_the_same_voice(self, call, words):
        code, out, err = call(*words)
        assert (code, out) == (2, "")
        assert err.startswith("creditscope: ")
        assert not set(err) & set("│─╭╰")
        assert "--help" in err.splitlines()[-1]


class TestFolders:
    def test_a_file_is_called_one(self, call, tmp_path):
        file = tmp_path / "own.py"
        file.write_text("")
        code, _, err = call("audit", file)
        assert (code, f"{file} is a file" in err) == (2, True)

    def test_an_empty_folder_is_named_with_what_to_do(self, call, tmp_path):
        code, _, err = call("audit", tmp_path)
        assert (code, f"{tmp_path}, but got none." in err) == (2, True)

    @pytest.mark.slow
    @pytest.mark.parametrize("command", ["audit", "report", "export", "pack", "reproduction", "figure own"])
    def test_records_are_named_in_either_way_but_not_in_both(self, call, tmp_path, command):
        for record in make_family():
            write_record(tmp_path / "records", record)
        words, given = command.split(), ("--out", tmp_path / "x" / "y") * (command != "audit")
        plain = call(*words, tmp_path / "records", *given)
        assert plain == call(*words, "--records", tmp_path / "records", *given)
        assert "does not exist" not in plain[2]
        code, _, err = call(*words, tmp_path / "a", "--records", tmp_path / "b", *given)
        assert (code, f"{tmp_path / 'a'} and {tmp_path / 'b'}" in err) == (2, True)

    def test_names_with_spaces_are_quoted(self):
        assert "Choices: BP, 'sign symm, batch'." in str(UnknownNameError("method", "x", ["sign symm, batch", "BP"]))


class TestFigures:
    @pytest.mark.slow
    def test_all_trains_nothing(self, call, tmp_path, monkeypatch):
        monkeypatch.setattr("creditscope.train.execute.run_all", lambda *_, **__: pytest.fail("trained"))
        records = tmp_path / "records"
        write_record(records, make_wanted(audit_hero("demo").runs[0]))
        code, out, _ = call("figure", "all", records, "--out", tmp_path / "figures")
        assert (code, "audit_hero: 1 of 9" in out, "normalisation: not drawn" in out) == (0, True, True)
        assert len(load_records(records)) == 1
        code, _, err = call("figure", "all", tmp_path / "nowhere")
        assert (code, "nowhere" in err) == (2, True)

    @pytest.mark.slow
    def test_own_draws_what_is_there_a_figure_for_each_setting(self, call, tmp_path):
        out = tmp_path / "figures"
        for record in make_family("dfa"):
            write_record(tmp_path / "records", record)
        code, said, err = call("figure", "own", tmp_path / "records", "--out", out)
        assert (code, err, sorted(p.name for p in out.iterdir())) == (0, "", ["own.pdf", "own.png"])
        write_record(tmp_path / "records", make_record(task="digits", rule="bp"))
        code, said, _ = call("figure", "own", tmp_path / "records", "--out", out)
        assert (code, [line.split(": wrote")[0] for line in said.splitlines()]) == (
            0,
            ["own_1: digits, resmlp, BP", "own_2: mnist1d, resmlp, BP, DFA"],
        )
        assert {p.stem for p in out.iterdir()} == {"own", "own_1", "own_2"}

    @pytest.mark.slow
    def test_own_draws_the_last_text_of_a_rule_that_was_edited(self, call, tmp_path):
        for text, started in (("b", "2026-01-01"), ("a", "2026-01-02")):
            record = make_record(rule="dfa", rule_source=text)
            write_record(tmp_path, replace(record, provenance=replace(record.provenance, started=started)))
        code, said, _ = call("figure", "own", tmp_path, "--out", tmp_path / "figures")
        assert (code, "edited since: 1 run\n" in said) == (0, True)
        assert [r.spec.rule_source for r in latest_texts(load_records(tmp_path)) if r.spec] == ["a"]

    def test_own_without_runs(self, call, tmp_path):
        write_record(tmp_path, make_record(frozen=True))
        code, _, err = call("figure", "own", tmp_path)
        assert (code, f"{tmp_path}, but got none" in err) == (2, True)


def test_an_example_says_what_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    with pytest.raises(SystemExit, match=r"torch_geometric.*\.\[pyg\]'$"):
        runpy.run_path(str(ROOT / "examples" / "watch_pyg_neighbours.py"))


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_setting_up_is_told_in_words_alone(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    command = ["make", f"VENV={tmp_path}", f"PYTHON={sys.executable}", str(tmp_path / ".ready")]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    told = [line for line in told if not line.startswith("make")]
    assert [re.sub("[,:].*", "", line) for line in told] == [f"Setting up {tmp_path}", "Set up."]
