"""The command line: what it refuses, what it writes, and what it does not import."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import make_family, make_record, write_record

from creditscope.errors import CreditscopeError
from creditscope.record import read_record
from creditscope.registry import TASKS
from creditscope.tasks import Task, check_task, register_task
from creditscope.train.pool import CUDA_JOBS

TINY = ("--task", "digits", "--width", "8", "--depth", "1", "--epochs", "1", "--jobs", "1", "--quiet")
DEMO = {"net_options": {"depth": 4, "width": 128, "terminal_norm": True}, "epochs": 60, "snapshot_every": 5}


def trained(folder: Path) -> list[Path]:
    """Everything a run would have left."""
    return [*folder.rglob("snapshots.jsonl"), *folder.rglob("*.safetensors")]


class TestImports:
    def test_help_imports_no_torch(self):
        command = [sys.executable, "-X", "importtime", "-m", "creditscope", "--help"]
        done = subprocess.run(command, capture_output=True, text=True)
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert done.returncode == 0
        assert "creditscope.cli" in imported
        assert [name for name in imported if name.split(".")[0] in ("torch", "matplotlib", "pandas", "xarray")] == []

    @pytest.mark.slow
    def test_stored_records_need_no_torch(self, tmp_path):
        """audit, list, figure and reproduction in one process of their own."""
        for rule in ("bp", "block_fa", "dfa"):
            write_record(tmp_path / "records", make_record(rule=rule, **DEMO))
        code = f"""
import sys
from creditscope.cli import main
records, figures = {str(tmp_path / "records")!r}, {str(tmp_path / "figures")!r}
for words in (["audit", records], ["audit", records, "--json", "--set", "growth=20"], ["list"],
              ["audit", records, "--table", "--sensitivity", "--interval", "bootstrap", "--card", figures + "/cards"],
              ["figure", "audit_hero", "--records", records, "--out", figures, "--no-train"],
              ["reproduction", "--records", records, "--out", figures + "/cards/page.md"]):
    main(words)
    assert "torch" not in sys.modules, words
    print("done", words[0])
"""
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        commands = ["audit", "audit", "list", "audit", "figure", "reproduction"]
        assert re.findall("^done (.*)$", done.stdout, re.M) == commands
        names = sorted(path.name for path in (tmp_path / "figures").iterdir())
        assert names == ["audit_hero.md", "audit_hero.pdf", "audit_hero.png", "audit_hero.tex", "cards"]


class TestRefusals:
    """Exit code 2, what was expected, what came; nothing is trained."""

    @pytest.mark.parametrize(
        ("words", "kind", "choices"),
        [
            (("run", "--rule", "nope"), "rule", "block_fa, bp, dfa, fa"),
            (("run", "--net", "nope"), "net", "resmlp"),
            (("run", "--task", "nope"), "task", "digits, mnist1d"),
            (("figure", "nope"), "figure", "audit_hero"),
            (("run", "--set", "net.nope=1"), "net 'resmlp'", "depth, terminal_norm, width"),
            (("run", "--rule", "fa", "--set", "rule.nope=1"), "rule 'fa'", "head, scale"),
            (("run", "--set", "task.nope=1"), "task 'mnist1d'", "none"),
            (("audit", "--set", "nope=1"), "threshold", "depth_gain, growth"),
            (("audit", "records", "--strict", "nope"), "method", "DFA"),
        ],
    )
    def test_unknown_names_list_the_choices(self, call, tmp_path, monkeypatch, words, kind, choices):
        monkeypatch.chdir(tmp_path)
        write_record(tmp_path / "records", make_record())
        code, out, err = call(*words)
        assert (code, out) == (2, "")
        found = re.search(f"{kind}, but got 'nope'. Choices: (.*)[.]", err)
        assert found
        assert set(choices.split(", ")) <= set(found[1].split(", "))
        assert [path.name for path in tmp_path.iterdir()] == ["records"]

    @pytest.mark.parametrize(
        ("words", "came"),
        [
            (("--epochs", "0"), "epochs >= 1, but got 0"),
            (("--seeds", "1", "2", "1"), "1 more than once"),
            (("--batch", "1401"), "1400 .*, but got 1401"),
            (("--batch", "0"), "batch >= 1, but got 0"),
            (("--lr", "0"), "lr > 0, but got 0.0"),
            (("--lr", "inf"), "inf"),
            (("--lr", "nan"), "lr > 0, but got nan"),
            (("--depth", "0"), "depth 0 and width 8"),
            (("--set", "net.terminal_norm=x"), "bool .*, but got 'x'"),
            (("--set", "depth=3"), "'depth=3'"),
            (("--set", "net.depth"), "'net.depth'"),
            (("--rule", "nowhere.py:Mine"), "'nowhere.py'"),
        ],
    )
    def test_bad_numbers(self, call, tmp_path, words, came):
        code, _, err = call("run", *TINY, *words, "--out", tmp_path)
        assert code == 2
        assert re.search(came, err)
        assert trained(tmp_path) == []

    @pytest.mark.parametrize(("given", "said"), [("growth=big", "'big'"), ("depth_gain=2", "got 2")])
    def test_bad_thresholds(self, call, tmp_path, given, said):
        write_record(tmp_path, make_record())
        code, _, err = call("audit", tmp_path, "--set", given)
        assert (code, said in err) == (2, True)


GOOD = Task(
    "mine", np.ones((20, 4), np.float32), np.arange(20) % 3, np.ones((6, 4), np.float32), np.arange(6) % 3, classes=3
)
BAD = {
    "nan": ({"x_train": np.where(np.eye(20, 4) > 0, np.nan, 1)}, "training", "4 NaN"),
    "infinite": ({"x_test": np.full((6, 4), np.inf)}, "test", "24 NaN"),
    "too high": ({"y_train": np.arange(20) % 4}, "training", "0 to 3"),
    "below 0": ({"y_test": np.arange(6) - 1}, "test", "-1 to 4"),
    "empty": ({"x_train": np.ones((0, 4)), "y_train": np.arange(0)}, "training", "none"),
    "uneven": ({"y_train": np.arange(19) % 3}, "training", "20 rows and 19"),
    "not classes": ({"y_test": np.ones(6)}, "test", "float64"),
    "shapes": ({"x_test": np.ones((6, 5))}, "training and test", "(4,) and (5,)"),
}
"""What is wrong with the data, in which rows, what came."""


class TestData:
    """Data that no run should start on, as a user would bring them."""

    @pytest.fixture
    def register(self, monkeypatch):
        """Make a task known for one test."""
        monkeypatch.setattr(TASKS, "_registered", dict(TASKS._registered))

        def keep(task: Task) -> None:
            register_task("mine", version="1")(lambda: task)

        return keep

    @pytest.mark.parametrize("case", BAD)
    def test_bad_data_are_refused_before_training(self, call, tmp_path, register, case):
        changes, where, came = BAD[case]
        bad = Task(**vars(GOOD) | changes)
        with pytest.raises(CreditscopeError, match=f"{where} .*task 'mine', but got .*{re.escape(came)}") as found:
            check_task(bad)
        register(bad)
        code, _, err = call("run", "--task", "mine", "--batch", "4", "--out", tmp_path, "--quiet")
        assert (code, err.partition("\n")[0]) == (2, f"creditscope: {found.value}")
        assert trained(tmp_path) == []

    def test_good_data_are_returned_unchanged(self):
        assert check_task(GOOD) is GOOD

    def test_small_integer_labels_are_trained_on(self, call, tmp_path, register):
        """Image data sets often hold uint8 labels."""
        small = {"y_train": GOOD.y_train.astype(np.uint8), "y_test": GOOD.y_test.astype(np.uint8)}
        register(Task(**vars(GOOD) | small))
        code, _, err = call("run", *TINY, "--task", "mine", "--seeds", "1", "--batch", "4", "--out", tmp_path)
        assert (code, err) == (0, "")
        assert len(list((tmp_path / "records").iterdir())) == 1


class TestRun:
    def test_writes_a_record_and_reuses_it(self, call, tmp_path):
        words = ("run", *TINY, "--seeds", "5,", "--out", tmp_path, "--json")
        code, out, _ = call(*words)
        (folder,) = (tmp_path / "records").iterdir()
        files = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
        record = read_record(folder)
        assert code == 0
        assert sorted(files) == ["provenance.json", "snapshots.jsonl", "spec.json", "weights.safetensors"]
        assert (record.provenance.status, [s.epoch for s in record.snapshots]) == ("complete", [0, 1])
        (method,) = json.loads(out)["methods"]
        assert (method["seeds"], method["accuracy"]["mean"]) == ([5], record.last.accuracy)
        assert call(*words)[:2] == (0, out)
        assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == files

        file = folder / "snapshots.jsonl"
        file.write_text(file.read_text()[:-50])
        code, out, err = call(*words)  # which stays JSON when something is noted
        assert (code, "damaged-0-" in out + err) == (0, True)
        assert json.loads(out)["methods"][0]["seeds"] == [5]

    def test_a_rung_of_the_ladder_alone_is_not_judged(self, call, tmp_path):
        words = ("run", *TINY, "--seeds", "5,", "--out", tmp_path, "--train-last", "0")
        code, out, _ = call(*words)
        assert code == 0
        assert re.fullmatch(r"digits-resmlp-bp-s5-\w+: accuracy 0\.\d+\n", out)
        assert [f"{value:.3f}" in out for value in json.loads(call(*words, "--json")[1]).values()] == [True]

    def test_the_ladder_and_controls_are_trained_and_told_apart(self, call, tmp_path):
        words = ("--depth", "2", "--seeds", "5,", "--snapshot-every", "0", "--tier", "quick", "--ladder")
        code, out, _ = call("run", *TINY, *words, "--controls", "random targets", "--out", tmp_path, "--json")
        full, random = json.loads(out)["methods"]
        assert (code, [rung["trained"] for rung in full["ladder"]], random["ladder"]) == (0, [0, 1], [])
        assert random["setting"].endswith("random targets")
        code, _, err = call("run", *TINY, "--frozen", "--ladder", "--out", tmp_path)
        assert (code, "--frozen or --ladder" in err) == (2, True)

    @pytest.mark.slow
    @pytest.mark.parametrize("other", ["0.0", "0.000"])
    def test_a_users_rule_and_its_edits(self, call, tmp_path, monkeypatch, other):
        """The same rule under another text is another run, even if it is as long and edited within a second."""
        monkeypatch.setattr(sys, "dont_write_bytecode", False)  # stale bytecode must not be taken for the new text
        file, out = tmp_path / "mine.py", tmp_path / "out"

        def run(scale: str) -> set[str]:
            file.write_text(
                "from creditscope import TapRule\n\n\n"
                "class Mine(TapRule):\n"
                "    label = 'my own'\n\n"
                "    def credit(self, ctx):\n"
                f"        return [{scale} * h for h in ctx.states]\n"
            )
            os.utime(file, (1, 1))
            code, shown, _ = call("run", *TINY, "--seeds", "5,", "--rule", f"{file}:Mine", "--out", out)
            assert (code, "my own" in shown) == (0, True)
            return {path.name for path in (out / "records").iterdir()}

        (first,) = run("1.0")
        assert first.startswith("digits-resmlp-Mine-s5-")
        assert run("1.0") == {first}
        (second,) = run(other) - {first}
        assert read_record(out / "records" / first).last.taps.rows_no_credit == (0, 0)
        assert read_record(out / "records" / second).last.taps.rows_no_credit == (397, 397)

    def test_a_rule_derived_from_another_has_its_own_name(self, call, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text("from creditscope.rules.dfa import DFA\n\n\nclass Mine(DFA):\n    label = 'my own'\n")
        code, *_ = call("run", *TINY, "--seeds", "5,", "--rule", f"{file}:Mine", "--out", tmp_path)
        (folder,) = (tmp_path / "records").iterdir()
        assert (code, read_record(folder).facts.rule.name) == (0, "Mine")

    def test_what_the_file_lacks_is_named(self, call, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text("from creditscope.rules.dfa import DFA\n")
        code, _, err = call("run", *TINY, "--rule", f"{file}:Mine", "--out", tmp_path)
        assert code == 2
        assert "'Mine'" in err
        assert "there: DFA." in err


class TestShow:
    def test_audit(self, call, tmp_path):
        for record in make_family(taps={"h_rms": (1, 1, 30, 30, 30)}):
            write_record(tmp_path, record)
        code, out, _ = call("audit", tmp_path, "--json")
        assert code == 0
        assert [m["verdict"]["word"] for m in json.loads(out)["methods"]] == ["trustworthy", "trustworthy"]
        code, out, _ = call("audit", tmp_path, "--json", "--set", "growth=20", "--mute", "CS005", "CS006")
        dfa = json.loads(out)["methods"][1]
        assert (dfa["verdict"]["codes"], dfa["verdict"]["muted"]) == (["CS001"], ["CS005", "CS006"])
        code, out, _ = call("audit", tmp_path, "--set", "growth=20")
        assert (code, "walk back (CS001)" in out) == (0, True)

    def test_only_and_explain(self, call, tmp_path):
        for epochs in (1, 2):
            write_record(tmp_path, make_record(epochs=epochs))
        code, out, _ = call("audit", tmp_path, "--json", "--only", "2 epochs, DFA")
        assert (code, [m["setting"] for m in json.loads(out)["methods"]]) == (0, ["mnist1d · resmlp · 2 epochs"])
        code, _, err = call("audit", tmp_path, "--only", "7 epochs")
        assert (code, "'7 epochs'" in err) == (2, True)
        code, out, _ = call("audit", tmp_path / "nowhere", "--explain", "CS005")
        assert (code, out.count("What to do:"), "CS005" in out) == (0, 1, True)
        code, _, err = call("audit", "--explain", "CS099")
        assert (code, "CS099" in err) == (2, True)

    @pytest.fixture
    def records(self, tmp_path):
        """BP, which passes, and DFA, whose stream grows 60-fold from epoch 1 on."""
        for record in make_family(taps={"h_rms": (1, 1, 60, 60, 60)}):
            write_record(tmp_path / "records", record)
        return tmp_path / "records"

    def test_strict_fails_with_the_reason(self, call, records):
        code, out, err = call("audit", records, "--strict")
        assert (code, "walk back (CS001)" in out) == (1, True)
        for words in ("DFA (mnist1d · resmlp · 1 epoch)", "walk back", "CS001 issue", "docs/checks/CS001.md"):
            assert words in err

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            ((), 0),
            (("--strict", "BP"), 0),
            (("--strict", "DFA"), 1),
            (("--strict", "BP", "DFA", "--json"), 1),
            (("--strict", "--set", "growth=70"), 0),
            (("--strict", "--mute", "CS001"), 0),
        ],
    )
    def test_strict_asks_for_the_methods_named_or_all(self, call, records, words, code):
        found, _, err = call("audit", records, *words)
        assert (found, bool(err)) == (code, bool(code))

    @pytest.mark.parametrize(
        ("made", "said"),
        [
            ([make_record()], "not measured: CS004 skipped"),
            (make_family(taps={"cos": 0.06, "cos_F": 0.06}), "undecided: CS005 undecided"),
            ([make_record(seed=s, targets="random") for s in (1, 2, 3)], "not judged: random targets"),
        ],
    )
    def test_what_could_not_be_decided_has_not_passed(self, call, tmp_path, made, said):
        for record in made:
            write_record(tmp_path, record)
        code, _, err = call("audit", tmp_path, "--strict", "DFA")
        assert (code, said in err) == (1, True)

    @pytest.mark.slow
    def test_table_and_sensitivity_instead_of_the_audit(self, call, records):
        code, out, _ = call("audit", records, "--table")
        assert (code, "growth > 50" in out, "Is depth used?" in out) == (0, True, False)
        code, out, _ = call("audit", records, "--sensitivity")
        assert (code, "growth > 50" in out) == (0, False)
        code, out, _ = call("audit", records, "--json", "--sensitivity")
        read = json.loads(out)
        (growth,) = [r for r in read["sensitivity"] if r["name"] == "growth"]
        assert (code, growth["high"]) == (0, pytest.approx(60, rel=1e-6))
        (row,) = [d for d in read["decisions"] if (d["criterion"], d["method"], d["seed"]) == ("CS001", "DFA", 2)]
        assert (row["conclusion"], row["first_epoch"]) == ("walks back", 1)

    def test_cards_are_written_and_named(self, call, records, tmp_path):
        code, out, _ = call("audit", records, "--card", tmp_path / "cards")
        paths = [line.removeprefix("wrote ") for line in out.splitlines() if line.startswith("wrote ")]
        assert code == 0
        assert sorted(paths) == sorted(map(str, (tmp_path / "cards").iterdir()))
        assert [Path(p).suffix for p in paths] == [".md", ".json"] * 2
        code, out, err = call("audit", records, "--card", tmp_path / "cards", "--json")
        assert json.loads(out)["methods"]
        assert err.count("wrote ") == 4

    def test_bootstrap_intervals(self, call, records):
        code, out, _ = call("audit", records, "--json", "--interval", "bootstrap")
        assert code == 0
        assert json.loads(out)["methods"][1]["per_tap"][0]["cos"]["kind"] == "bootstrap"

    def test_help_says_how_many_workers_there_are_on_cuda(self, call):
        _, out, _ = call("run", "--help")
        assert f"at most {CUDA_JOBS})" in " ".join(out.replace("│", " ").split())

    def test_list(self, call):
        code, out, _ = call("list", "--json")
        found = json.loads(out)
        assert code == 0
        assert sorted(found) == ["checks", "exports", "figures", "nets", "rules", "studies", "tasks", "thresholds"]
        assert {"bp", "fa", "block_fa", "dfa"} <= set(found["rules"])
        assert all(summary for rows in found.values() for summary in rows.values())
        code, out, _ = call("list", "nets")
        assert (code, out.split()[0], "  resmlp" in out, "dfa" in out) == (0, "nets", True, False)

    def test_doctor(self, call):
        code, out, _ = call("doctor", "--json")
        found = json.loads(out)
        assert (code, found["numpy"]) == (0, np.__version__)
        assert {"creditscope", "python", "torch", "devices", "cores", "data folder"} <= set(found)
        code, out, _ = call("doctor")
        assert (code, out.split()[0]) == (0, "creditscope")
