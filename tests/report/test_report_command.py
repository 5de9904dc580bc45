"""The command: folders that are whole, partial, empty or absent, and the size of the page."""

import numpy as np
import pytest
from builders import make_facts, make_family, make_record, make_snapshot, write_record, write_records
from documents import ROOT
from reading import Page, over_epochs, page_of

from creditscope.auditing import Thresholds
from creditscope.report import judge_records, write_report


def test_an_empty_folder_gives_a_page_that_says_so(told, tmp_path):
    out = told("report", "--records", tmp_path, "--out", tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    (note,) = [line.removeprefix("note: ") for line in out.splitlines() if line.startswith("note: ")]
    assert (note in page.text, page.methods, page.verdicts) == (True, {}, [])
    assert {name["href"][1:] for name in page.all("a", href="*")} <= {found["id"] for found in page.all(id="*")}


def test_a_partial_folder_says_what_is_missing(told, tmp_path):
    records = write_records(tmp_path / "records", make_family("dfa"))
    folder = write_record(records, make_record(rule="fa", seed=5))
    (folder / "snapshots.jsonl").write_text("{}\n")
    unfinished = write_record(records, make_record(rule="fa", seed=6, status="running"))
    told("report", "--records", records, "--out", tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert folder.name in page.text
    assert unfinished.name in page.text
    assert ("DFA", "trustworthy") in page.verdicts


def test_baselines_alone_are_said_to_be_that():
    (problem,) = judge_records([make_record(frozen=True)], "here", Thresholds(), []).problems
    assert "frozen baselines" in problem


@pytest.mark.slow
def test_a_deep_net_over_many_epochs_and_seeds_stays_small(tmp_path):
    """Every number differs, at two moments of 33 taps and three seeds, so that nothing can be said once for many."""
    rng, taps, methods = np.random.default_rng(0), 33, 8
    depth = {"depth": taps - 1}

    def record(seed, width):
        found = []
        for epoch in (0, 100):
            sizes = {"g_norm": tuple(10 ** rng.uniform(-9, 0, taps)), "h_norm": tuple(10 ** rng.uniform(0, 5, taps))}
            values = {"cos": tuple(rng.uniform(-1, 1, taps)), "rho": (), **sizes}
            found.append(make_snapshot(make_facts(**depth), epoch=epoch, taps=values))
        return make_record(seed=seed, epochs=100, net_options={**depth, "width": width}, snapshots=found, facts=depth)

    records = [record(seed, width) for width in range(methods) for seed in range(3)]
    size = write_report(judge_records(records, "here", Thresholds(), []), tmp_path / "r.html")
    fixed = write_report(judge_records(records[:3], "here", Thresholds(), []), tmp_path / "one.html")
    assert (size - fixed) / (methods - 1) < 45_000


@pytest.mark.slow
def test_the_shipped_records_make_a_small_page_of_few_elements_and_every_row_opens(told, tmp_path):
    told("report", "--records", ROOT / "results" / "paper", "--out", tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size < 5_000_000
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert len(page.elements) < 15_000
    rows = [row["id"] for row in page.all("tr", data_verdict="*")]
    assert len(rows) == len(page.methods) > 300
    assert set(rows) == set(page.methods)


@pytest.mark.slow
def test_many_epochs_become_two_dozen_columns():
    epochs = page_of(over_epochs(range(401))).values[0]["epochs"]
    assert (len(epochs), epochs[0], epochs[-1]) == (24, 0, 400)


def test_a_page_that_cannot_be_written_leaves_the_old_one(call, tmp_path):
    records, page = write_records(tmp_path / "records", make_family()), tmp_path / "page.html"
    page.write_text("old")
    (tmp_path / "page.html.part").mkdir()
    code, _, err = call("report", records, "--out", page)
    assert (code, len(err.splitlines()), page.read_text()) == (2, 1, "old")
