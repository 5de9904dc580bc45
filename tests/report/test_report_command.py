"""The command: folders that are whole, partial, empty or absent, and the size of the page."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import make_facts, make_family, make_record, make_snapshot, write_record
from reading import Page, over_epochs, page_of

from creditscope.auditing import Thresholds
from creditscope.cli import main
from creditscope.report import judge_records, write_report

SHIPPED = Path(__file__).parents[2] / "results/paper"


def test_an_empty_folder_gives_a_page_that_says_so(call, tmp_path):
    (tmp_path / "none").mkdir()
    code, out, _ = call("report", "--records", tmp_path / "none", "--out", tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    (note,) = [line.removeprefix("note: ") for line in out.splitlines() if line.startswith("note: ")]
    assert (code, note in page.text, page.data["settings"], page.data["methods"]) == (0, True, [], [])
    assert {name["href"][1:] for name in page.all("a", href="*")} <= {found["id"] for found in page.all(id="*")}


def test_a_partial_folder_says_what_is_missing(call, tmp_path):
    for record in make_family("dfa"):
        write_record(tmp_path / "records", record)
    folder = write_record(tmp_path / "records", make_record(rule="fa", seed=5))
    (folder / "snapshots.jsonl").write_text("{}\n")
    unfinished = write_record(tmp_path / "records", make_record(rule="fa", seed=6, status="running"))
    code, _, _ = call("report", "--records", tmp_path / "records", "--out", tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert code == 0
    assert folder.name in page.text
    assert unfinished.name in page.text
    assert ("DFA", "trustworthy") in page.verdicts


def test_baselines_alone_are_said_to_be_that():
    (problem,) = judge_records([make_record(frozen=True)], "here", Thresholds(), []).problems
    assert "frozen baselines" in problem


def test_a_folder_that_is_not_there_is_an_error(call, tmp_path):
    for words in (["--records", tmp_path / "no"], ["--records", tmp_path, "--against", tmp_path / "no"]):
        code, _, err = call("report", *words, "--out", tmp_path / "r.html")
        assert (code, "does not exist" in err) == (2, True)
    assert not (tmp_path / "r.html").exists()


def test_an_unknown_threshold_is_refused(call, tmp_path):
    code, _, err = call("report", "--records", tmp_path, "--set", "grwth=3", "--out", tmp_path / "r.html")
    assert (code, "grwth" in err) == (2, True)


@pytest.mark.slow
def test_it_needs_no_torch(tmp_path):
    for record in make_family("dfa"):
        write_record(tmp_path / "records", record)
    words = ["report", "--records", str(tmp_path / "records"), "--out", str(tmp_path / "r.html")]
    code = f"import sys\nfrom creditscope.cli import main\nmain({words!r})\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_deep_net_over_many_epochs_and_seeds_stays_small(tmp_path):
    """Every number differs, at two moments of 33 taps and three seeds, so that nothing can be said once for many."""
    rng, taps, methods = np.random.default_rng(0), 33, 8
    facts = make_facts(depth=taps - 1)

    def snapshot(epoch):
        sizes = {"g_norm": tuple(10 ** rng.uniform(-9, 0, taps)), "h_norm": tuple(10 ** rng.uniform(0, 5, taps))}
        return make_snapshot(facts, epoch=epoch, taps={"cos": tuple(rng.uniform(-1, 1, taps)), "rho": (), **sizes})

    records = [
        make_record(
            seed=seed,
            epochs=100,
            net_options={"depth": taps - 1, "width": width},
            snapshots=[snapshot(0), snapshot(100)],
            facts={"depth": 32},
        )
        for width in range(methods)
        for seed in range(3)
    ]
    size = write_report(judge_records(records, "here", Thresholds(), []), tmp_path / "r.html")
    fixed = write_report(judge_records(records[:3], "here", Thresholds(), []), tmp_path / "one.html")
    assert (size - fixed) / (methods - 1) < 45_000


@pytest.mark.slow
def test_the_shipped_records_fit_into_six_megabytes(tmp_path):
    main(["report", "--records", str(SHIPPED), "--out", str(tmp_path / "r.html")])
    assert (tmp_path / "r.html").stat().st_size < 6_000_000


@pytest.mark.slow
def test_many_epochs_become_two_dozen_columns():
    epochs = page_of(over_epochs(range(401))).data["methods"][0]["epochs"]
    assert (len(epochs), epochs[0], epochs[-1]) == (24, 0, 400)
