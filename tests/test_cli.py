"""The command line: what it refuses, what it trains, judges, draws and writes, and what it does not import."""

import json
import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import make_family, make_record, make_wanted, run_python, write_record, write_records
from documents import ROOT

from creditscope.commands import doctor
from creditscope.commands.list import List
from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.paper.studies.audit_hero import audit_hero
from creditscope.plots._overview import latest_texts
from creditscope.record import load_records, read_record
from creditscope.registry import TASKS
from creditscope.tasks import Task, check_task, register_task

TINY = ("--task", "digits", "--width", "8", "--depth", "1", "--epochs", "1", "--slots", "1")
QUIET = (*TINY, "--quiet")
DEMO = {"net_options": {"depth": 4, "width": 128, "terminal_norm": True}, "epochs": 60, "snapshot_every": 5}


@pytest.mark.slow
def test_stored_records_need_no_torch(tmp_path):
    """audit, list, figure, reproduction and report in one process of their own."""
    for rule in ("bp", "block_fa", "dfa"):
        write_record(tmp_path / "records", make_record(rule=rule, **DEMO))
    code = f"""
import sys
from creditscope.cli import main
records, figures = {str(tmp_path / "records")!r}, {str(tmp_path / "figures")!r}
for words in (["audit", records], ["audit", records, "--json", "--set", "growth=20"], ["list"],
              ["audit", records, "--table", "--sensitivity", "--interval", "bootstrap", "--card", figures + "/cards"],
              ["figure", "audit_hero", "--records", records, "--out", figures, "--no-train"],
              ["reproduction", "--records", records, "--out", figures + "/cards/page.md"],
              ["report", "--records", records, "--out", figures + "/cards/page.html"]):
    main(words)
    assert "torch" not in sys.modules, words
    print("done", words[0])
"""
    done = re.findall("^done (.*)$", run_python("-W", "error", "-c", code), re.M)
    assert done == ["audit", "audit", "list", "audit", "figure", "reproduction", "report"]
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert names == ["audit_hero.md", "audit_hero.pdf", "audit_hero.png", "audit_hero.tex", "cards"]


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
        return lambda task: register_task("mine", version="1")(lambda: task)

    @pytest.mark.parametrize("case", BAD)
    def test_bad_data_are_refused_before_training(self, refused, tmp_path, register, case):
        changes, where, came = BAD[case]
        bad = Task(**vars(GOOD) | changes)
        with pytest.raises(CreditscopeError, match=f"{where} .*task 'mine', but got .*{re.escape(came)}") as found:
            check_task(bad)
        register(bad)
        err = refused("run", "--task", "mine", "--batch", "4", "--out", tmp_path, "--quiet")
        assert err.partition("\n")[0] == f"creditscope: {found.value}"
        assert [*tmp_path.rglob("snapshots.jsonl"), *tmp_path.rglob("*.safetensors")] == []

    def test_good_data_are_returned_unchanged(self):
        assert check_task(GOOD) is GOOD

    def test_small_integer_labels_are_trained_on(self, call, tmp_path, register):
        """Image data sets often hold uint8 labels."""
        small = {"y_train": GOOD.y_train.astype(np.uint8), "y_test": GOOD.y_test.astype(np.uint8)}
        register(Task(**vars(GOOD) | small))
        code, _, err = call("run", *QUIET, "--task", "mine", "--seeds", "1", "--batch", "4", "--out", tmp_path)
        assert (code, err) == (0, "")
        assert len(list((tmp_path / "records").iterdir())) == 1


class TestAsking:
    @pytest.mark.parametrize(
        ("words", "seeds"), [(("2",), (42, 123)), (("7,",), (7,)), (("7", "8"), (7, 8)), (("7,8",), (7, 8))]
    )
    def test_seeds_are_a_number_or_a_list_as_in_python(self, call, tmp_path, monkeypatch, words, seeds):
        asked = {}
        monkeypatch.setattr("creditscope.train.execute.run_all", lambda specs, *a, **k: asked.update(specs=specs) or [])
        call("run", *TINY, "--seeds", *words, "--out", tmp_path)
        assert tuple(spec.seed for spec in asked["specs"]) == seeds

    def test_ctrl_c_says_that_begun_runs_go_on(self, call, monkeypatch):
        def stop(_: List) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(List, "run", stop)
        code, _, err = call("list")
        assert (code, "last checkpoint" in err) == (130, True)

    def test_version(self, told):
        assert re.fullmatch(r"creditscope \d+\.\d+\.\d+\n", told("--version"))

    @pytest.mark.parametrize(
        ("words", "facts"),
        [
            ("list rule", ["'rule'", "Nearest: rules."]),
            ("list nonsense", ["'nonsense'"]),
            ("rn --rule dfa", ["'rn'", "Nearest: run."]),
            ("run --taks=digits", ["'--taks'", "Nearest: --task."]),
            ("run --zzz 1", ["'--zzz'"]),
            ("run --weight_decay 0 --epohcs 3", ["'--epohcs'", "Nearest: --epochs."]),  # an underscore is no mistake
            ("run --epochs x", ["--epochs", "INT", "'x'"]),
            ("run --set net.depth=-1 --lr x", ["--lr", "FLOAT", "'x'"]),
            ("run --optimiser adamm", ["--optimiser", "'adamm'", "Nearest: adam."]),
            ("run --optimiser SGD", ["--optimiser", "'SGD'", "Nearest: sgd."]),
            ("run digits", ["'digits'"]),
            ("audit a b c", ["'b'"]),
            ("audit --only", ["--only", "none"]),
            ("figure", ["NAME", "none"]),
            ("", ["demo", "doctor"]),
            ("run --\x1b[31m", [r"--\x1b[31m"]),
        ],
    )
    def test_what_cannot_be_read_is_refused_in_a_line_with_what_comes_nearest(self, refused, words, facts):
        err = refused(*words.split())
        assert (err.startswith("creditscope: Expected "), err.count("\n")) == (True, 1)
        assert not set(err) & set("│─╭╰")
        assert err.endswith("--help tells more.\n")
        assert [fact for fact in facts if fact not in err] == []
        assert ("Nearest" in err) == any("Nearest" in fact for fact in facts)

    @pytest.mark.parametrize("width", ["40", "80", "130", "250"])
    def test_options_are_known_on_a_terminal_of_any_width(self, refused, monkeypatch, width):
        """A wide help has groups side by side."""
        monkeypatch.setenv("COLUMNS", width)
        err = refused("run", "--optimiser", "adam", "--engine", "loop", "--weight-decay", "0", "--epochs", "x")
        assert "Expected --epochs to be INT, but got 'x'" in err
        assert "Nearest: --optimiser." in refused("run", "--optimisr", "adam")
        assert os.environ["COLUMNS"] == width

    @pytest.mark.slow
    @pytest.mark.parametrize("command", ["audit", "report", "pack", "reproduction", "figure own"])
    def test_records_are_named_in_either_way_but_not_in_both(self, call, refused, tmp_path, command):
        records = write_records(tmp_path / "records", make_family())
        words, given = command.split(), ("--out", tmp_path / "x" / "y") * (command != "audit")
        plain = call(*words, records, *given)
        assert plain == call(*words, "--records", records, *given)
        assert "does not exist" not in plain[2]
        err = refused(*words, tmp_path / "a", "--records", tmp_path / "b", *given)
        assert f"{tmp_path / 'a'} and {tmp_path / 'b'}" in err

    def test_names_with_spaces_are_quoted(self):
        assert "Choices: BP, 'sign symm, batch'." in str(UnknownNameError("method", "x", ["sign symm, batch", "BP"]))


class TestRun:
    def test_writes_a_record_and_reuses_it(self, call, told, tmp_path):
        words = ("run", *QUIET, "--seeds", "5,", "--out", tmp_path, "--json")
        out = told(*words)
        (folder,) = (tmp_path / "records").iterdir()

        def files() -> dict:
            return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}

        before, record = files(), read_record(folder)
        assert sorted(before) == ["provenance.json", "snapshots.jsonl", "spec.json", "weights.safetensors"]
        assert (record.provenance.status, [s.epoch for s in record.snapshots]) == ("complete", [0, 1])
        (method,) = json.loads(out)["methods"]
        assert (method["seeds"], method["accuracy"]["mean"]) == ([5], record.last.accuracy)
        assert (told(*words), files()) == (out, before)

        file = folder / "snapshots.jsonl"
        file.write_text(file.read_text()[:-50])
        code, out, err = call(*words)  # which stays JSON when something is noted
        assert (code, "damaged-0-" in out + err) == (0, True)
        assert json.loads(out)["methods"][0]["seeds"] == [5]

    def test_several_rules_in_one_go_then_all_on_record(self, call, tmp_path):
        words = ("run", *TINY, "--tier", "quick", "--rule", "bp", "dfa", "--seeds", "1", "--out", tmp_path, "--json")
        code, out, err = call(*words)
        assert [m["method"] for m in json.loads(out)["methods"]] == ["BP", "DFA"]
        assert (code, [int(n) for n in re.findall(r": (\d+)", err.splitlines()[0])]) == (0, [0, 2])
        code, again, err = call(*words)
        assert (code, again, [int(n) for n in re.findall(r": (\d+)", err)]) == (0, out, [2, 0])
        assert str(tmp_path / "records") in err

    def test_a_rung_of_the_ladder_alone_is_not_judged(self, told, tmp_path):
        words = ("run", *QUIET, "--seeds", "5,", "--out", tmp_path, "--train-last", "0")
        out = told(*words)
        assert re.fullmatch(r"digits-resmlp-bp-s5-\w+: accuracy 0\.\d+\n", out)
        assert [f"{value:.3f}" in out for value in json.loads(told(*words, "--json")).values()] == [True]

    def test_the_ladder_and_controls_are_trained_and_told_apart(self, told, tmp_path):
        words = ("--depth", "2", "--seeds", "5,", "--snapshot-every", "0", "--tier", "quick", "--ladder")
        out = told("run", *QUIET, *words, "--controls", "random targets", "--out", tmp_path, "--json")
        full, random = json.loads(out)["methods"]
        assert ([rung["trained"] for rung in full["ladder"]], random["ladder"]) == ([0, 1], [])
        assert random["setting"].endswith("random targets")

    @pytest.mark.slow
    @pytest.mark.parametrize("other", ["0.0", "0.000"])
    def test_a_users_rule_and_its_edits(self, told, tmp_path, monkeypatch, other):
        """The same rule under another text is another run, even if it is as long and edited within a second."""
        monkeypatch.setattr(sys, "dont_write_bytecode", False)  # stale bytecode must not be taken for the new text
        file, out = tmp_path / "mine.py", tmp_path / "out"

        def run(scale: str) -> set[str]:
            file.write_text(
                "from creditscope import TapRule\n\n\nclass Mine(TapRule):\n    label = 'my own'\n\n"
                f"    def credit(self, ctx):\n        return [{scale} * h for h in ctx.states]\n"
            )
            os.utime(file, (1, 1))
            assert "my own" in told("run", *QUIET, "--seeds", "5,", "--rule", f"{file}:Mine", "--out", out)
            return {path.name for path in (out / "records").iterdir()}

        (first,) = run("1.0")
        assert first.startswith("digits-resmlp-Mine-s5-")
        assert run("1.0") == {first}
        (second,) = run(other) - {first}
        assert read_record(out / "records" / first).last.taps.rows_no_credit == (0, 0)
        assert read_record(out / "records" / second).last.taps.rows_no_credit == (397, 397)

    def test_a_rule_derived_from_another_has_its_own_name(self, told, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text("from creditscope.rules.dfa import DFA\n\n\nclass Mine(DFA):\n    label = 'my own'\n")
        told("run", *QUIET, "--seeds", "5,", "--rule", f"{file}:Mine", "--out", tmp_path)
        (folder,) = (tmp_path / "records").iterdir()
        assert read_record(folder).facts.rule.name == "Mine"


class TestAudit:
    @pytest.fixture
    def records(self, tmp_path):
        """BP, which passes, and DFA, whose stream grows 60-fold from epoch 1 on."""
        return write_records(tmp_path / "records", make_family(taps={"h_rms": (1, 1, 60, 60, 60)}))

    def test_thresholds_can_be_set_and_checks_muted(self, told, records):
        words = {name: ("audit", records, "--set", f"growth={name}") for name in (70, 20)}
        methods = json.loads(told(*words[70], "--json"))["methods"]
        assert [m["verdict"]["word"] for m in methods] == ["trustworthy", "trustworthy"]
        dfa = json.loads(told(*words[20], "--json", "--mute", "CS005", "CS006"))["methods"][1]
        assert (dfa["verdict"]["codes"], dfa["verdict"]["muted"]) == (["CS001"], ["CS005", "CS006"])
        assert "walk back (CS001)" in told(*words[20], "-v")

    def test_only_and_explain(self, told, tmp_path):
        write_records(tmp_path, [make_record(epochs=epochs) for epochs in (1, 2)])
        out = told("audit", tmp_path, "--json", "--only", "2 epochs, DFA")
        assert [m["setting"] for m in json.loads(out)["methods"]] == ["mnist1d · resmlp · 2 epochs"]
        out = told("audit", tmp_path / "nowhere", "--explain", "CS005")
        assert (out.count("What to do:"), "CS005" in out) == (1, True)

    def test_strict_fails_with_the_reason(self, call, records):
        code, out, err = call("audit", records, "--strict")
        assert (code, "WALK BACK" in out) == (1, True)
        for words in ("DFA (mnist1d · resmlp · 1 epoch)", "walk back", "CS001 issue", "audit --explain CS001"):
            assert words in err

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            ("", 0),
            ("--strict BP", 0),
            ("--strict DFA", 1),
            ("--strict BP DFA --json", 1),
            ("--strict --set growth=70", 0),
            ("--strict --mute CS001", 0),
        ],
    )
    def test_strict_asks_for_the_methods_named_or_all(self, call, records, words, code):
        found, _, err = call("audit", records, *words.split())
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
        code, _, err = call("audit", write_records(tmp_path, made), "--strict", "DFA")
        assert (code, said in err) == (1, True)

    @pytest.mark.slow
    def test_table_and_sensitivity_instead_of_the_audit(self, told, records):
        out = told("audit", records, "--table")
        assert ("growth > 50" in out, "Is depth used?" in out) == (True, False)
        assert "growth > 50" not in told("audit", records, "--sensitivity")
        read = json.loads(told("audit", records, "--json", "--sensitivity"))
        (growth,) = [r for r in read["sensitivity"] if r["name"] == "growth"]
        assert growth["high"] == pytest.approx(60, rel=1e-6)
        (row,) = [d for d in read["decisions"] if (d["criterion"], d["method"], d["seed"]) == ("CS001", "DFA", 2)]
        assert (row["conclusion"], row["first_epoch"]) == ("walks back", 1)

    def test_cards_are_written_and_named(self, call, told, records, tmp_path):
        words = ("audit", records, "--card", tmp_path / "cards")
        paths = [line.removeprefix("wrote ") for line in told(*words).splitlines() if line.startswith("wrote ")]
        assert sorted(paths) == sorted(map(str, (tmp_path / "cards").iterdir()))
        assert [Path(p).suffix for p in paths] == [".md", ".json"] * 2
        _, out, err = call(*words, "--json")
        assert json.loads(out)["methods"]
        assert err.count("wrote ") == 4

    def test_bootstrap_intervals(self, told, records):
        read = json.loads(told("audit", records, "--json", "--interval", "bootstrap"))
        assert read["methods"][1]["per_tap"][0]["cos"]["kind"] == "bootstrap"


def test_list(told):
    found = json.loads(told("list", "--json"))
    assert sorted(found) == ["checks", "exports", "figures", "nets", "rules", "studies", "tasks", "thresholds"]
    assert {"bp", "fa", "block_fa", "dfa"} <= set(found["rules"])
    assert all(summary for rows in found.values() for summary in rows.values())
    out = told("list", "nets")
    assert (out.split()[0], "  resmlp" in out, "dfa" in out) == ("nets", True, False)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_list_is_as_wide_as_the_terminal_and_keeps_its_words(told, monkeypatch, width):
    """For a pipe there is a line each."""
    whole = told("list", "checks")
    assert whole.count("\n") == 1 + len(json.loads(told("list", "checks", "--json"))["checks"])
    monkeypatch.setenv("COLUMNS", str(width))
    broken = told("list", "checks")
    assert max(map(len, broken.splitlines())) <= width
    assert broken.split() == whole.split()


@pytest.mark.parametrize("width", [60, 100])
def test_columns_is_obeyed_by_what_is_piped(told, monkeypatch, tmp_path, width):
    records = write_records(tmp_path, make_family())
    assert 100 < max(map(len, told("audit", records).splitlines())) <= 150
    monkeypatch.setenv("COLUMNS", str(width))
    for words in ((), ("-v",), ("--table",)):
        assert max(map(len, told("audit", records, *words).splitlines())) <= width


def test_doctor(told, monkeypatch):
    found = json.loads(told("doctor", "--json"))
    assert found["numpy"] == np.__version__
    assert {"creditscope", "python", "torch", "devices", "cores", "data folder"} <= set(found)
    lines = told("doctor").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("✗")] == [name.split()[0] for name in found["to do"]]
    monkeypatch.setattr(doctor, "list_libraries", lambda: ["numpy>=1.0", "numpy_", "torch>=99.1"])
    signs = [tuple(line.split()[:2]) for line in told("doctor").splitlines()]
    assert {("✓", "numpy"), ("✗", "numpy_"), ("✗", "torch")} <= set(signs)
    assert "pip install 'torch>=99.1'" in told("doctor")


@pytest.mark.parametrize("place", ["a file", "below a file", "unwritable", "new", "there"])
def test_doctor_is_content_with_folders_that_can_be_written_alone(told, tmp_path, monkeypatch, place):
    """Of records and of data; nothing is left in them."""
    (tmp_path / "file").write_text("")
    (tmp_path / "there").mkdir()
    folder = tmp_path / {"a file": "file", "below a file": "file/new", "new": "new/new"}.get(place, "there")
    if place == "unwritable":
        monkeypatch.setattr(doctor.tempfile, "TemporaryFile", lambda *_, dir: Path(dir).read_text())  # of no folder
    monkeypatch.setenv("CREDITSCOPE_DATA", str(folder))
    well = place in ("new", "there")
    signs = {line[2:13].strip(): line for line in told("doctor", folder).splitlines()}
    assert [signs[name][0] for name in ("locks", "data folder")] == ["✓" if well else "✗"] * 2
    assert all(str(tmp_path) in signs[name] for name in ("locks", "data folder"))
    assert ("--out DIR" in signs["locks"], "--data-root" in signs["data folder"]) == (not well, not well)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]


class TestFigures:
    @pytest.mark.slow
    def test_all_trains_nothing(self, told, tmp_path, monkeypatch):
        monkeypatch.setattr("creditscope.train.execute.run_all", lambda *_, **__: pytest.fail("trained"))
        records = write_records(tmp_path / "records", [make_wanted(audit_hero("demo").runs[0])])
        out = told("figure", "all", records, "--out", tmp_path / "figures")
        assert ("audit_hero: 1 of 9" in out, "normalisation: not drawn" in out) == (True, True)
        assert len(load_records(records)) == 1

    @pytest.mark.slow
    def test_own_draws_what_is_there_a_figure_for_each_setting(self, call, told, tmp_path):
        records, out = write_records(tmp_path / "records", make_family("dfa")), tmp_path / "figures"
        code, _, err = call("figure", "own", records, "--out", out)
        assert (code, err, sorted(p.name for p in out.iterdir())) == (0, "", ["own.pdf", "own.png"])
        write_record(records, make_record(task="digits", rule="bp"))
        said = [line.split(": wrote")[0] for line in told("figure", "own", records, "--out", out).splitlines()]
        assert said == ["own_1: digits, resmlp, BP", "own_2: mnist1d, resmlp, BP, DFA"]
        assert {p.stem for p in out.iterdir()} == {"own", "own_1", "own_2"}

    @pytest.mark.slow
    def test_own_draws_the_last_text_of_a_rule_that_was_edited(self, told, tmp_path):
        for text, started in (("b", "2026-01-01"), ("a", "2026-01-02")):
            record = make_record(rule="dfa", rule_source=text)
            write_record(tmp_path, replace(record, provenance=replace(record.provenance, started=started)))
        assert "edited since: 1 run\n" in told("figure", "own", tmp_path, "--out", tmp_path / "figures")
        assert [r.spec.rule_source for r in latest_texts(load_records(tmp_path)) if r.spec] == ["a"]

    def test_own_without_runs(self, refused, tmp_path):
        write_record(tmp_path, make_record(frozen=True))
        assert f"{tmp_path}, but got none" in refused("figure", "own", tmp_path)


def test_an_example_says_what_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    with pytest.raises(SystemExit, match=r"torch_geometric.*\.\[pyg\]'$"):
        runpy.run_path(str(ROOT / "examples" / "watch_pyg_neighbours.py"))


@pytest.mark.parametrize(
    "words",
    [["--mute", "CS999"], ["--only", "nowhere"], ["--only", ","], ["--set", "nope=1"], ["--strict", "nobody"],
     ["--explain", "CS999"]],
)  # fmt: skip
def test_unknown_names_are_refused_with_the_choices(refused, tmp_path, words):
    err = refused("audit", write_records(tmp_path, make_family()), *words)
    choices = {"--only": "mnist1d", "--set": "growth", "--strict": "DFA"}
    assert (len(err.splitlines()), choices.get(words[0], "CS012") in err) == (1, True)


@pytest.mark.slow
class TestOutput:
    """Exit code 1 is for what is not trustworthy, and nothing else."""

    def run(self, *words, **options) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "creditscope", *words], capture_output=True, **options)

    @pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
    def test_an_encoding_that_lacks_characters(self, tmp_path, encoding):
        records = str(write_records(tmp_path, make_family()))
        done = self.run("audit", records, env={**os.environ, "PYTHONIOENCODING": encoding})
        assert (done.returncode, done.stderr, b" G +.50 " in done.stdout) == (0, b"", True)
        done = self.run("audit", records, "--json", env={**os.environ, "PYTHONIOENCODING": encoding})
        assert json.loads(done.stdout)["methods"][0]["method"] == "BP"


@pytest.mark.slow
def test_figures_are_drawn_whatever_windows_are_asked_for(tmp_path):
    write_records(tmp_path / "records", [make_record(rule=rule, **DEMO) for rule in ("bp", "block_fa", "dfa")])
    words = ["figure", "own", "--records", str(tmp_path / "records"), "--out", str(tmp_path / "out")]
    run_python("-m", "creditscope", *words, env={**os.environ, "MPLBACKEND": "nonsense"})
    assert (tmp_path / "out" / "own.png").stat().st_size > 1000
