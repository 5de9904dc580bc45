"""Tables of the documentation cell by cell: deep GCNs, what a measurement took, and runs that were trained twice."""

import json
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from documents import MANUAL, ROOT, assert_says, read_sizes, read_table

from creditscope.figures._controls import Controls, Row, select_controls
from creditscope.figures._graph_grid import Grid, select_grid
from creditscope.figures._words import half_width
from creditscope.record import Record, load_records
from creditscope.studies import collect, resolve_study
from creditscope.studies.graph_depth import METHODS

PAPER, RESULTS = ROOT / "results" / "paper", ROOT / "bench" / "results"
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
DEPTHS = ("2", "4", "6", "8", "10", "16", "20", "32")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return load_records(PAPER)


@pytest.fixture(scope="module")
def grid(records) -> Grid:
    return select_grid(collect(resolve_study("graph_depth", "paper"), PAPER, records=records, train=False, problems=[]))


@pytest.fixture(scope="module")
def controls(records) -> Controls:
    study = resolve_study("bottleneck_controls", "paper")
    return select_controls(collect(study, PAPER, records=records, train=False, problems=[]))


def graph_rows() -> list[tuple[str, dict[str, str]]]:
    """Graph and cells of every method; a graph's name stands in the first column above its rows."""
    found, graph = [], "cora"
    for row in read_table("| **Cora** |", MANUAL):
        name = row.pop("**Cora**")
        if name.startswith("**"):
            graph = name.strip("*").lower()
        else:
            found.append((graph, {"method": name.replace("BP by the recipe", "BP"), **row}))
    return found


@pytest.mark.parametrize(("task", "row"), graph_rows(), ids=lambda v: v if isinstance(v, str) else v["method"])
def test_accuracies_over_depth(task, row, grid):
    method = next(m for m in METHODS if grid.name(m) == row["method"])
    assert tuple(row)[1:] == DEPTHS
    for depth in DEPTHS:
        cell = grid.cell(task, int(depth), method)
        interval, lost = cell.interval(), len(cell.diverged)
        assert_says(row[depth], *([interval.mean] if interval else []))
        assert len(cell.runs) + lost == 5
        assert re.findall(r"\((\d) div\.\)", row[depth]) == ([str(lost)] if lost else [])


@pytest.mark.parametrize("row", read_table("| control |", MANUAL), ids=lambda row: row["control"])
def test_controls(row, controls):
    name = row["control"].replace("PairNorm on it", "PairNorm on row-normalised Â")
    for depth in (10, 20):
        block = next(block for block in controls.blocks if block.depth == depth)
        found = next(one for one in block.rows if one.control.name == name)
        assert_control(row[f"L = {depth}"], row[f"zeros at L = {depth}: norm, all"], found)
        if depth == 10:
            sizes = read_sizes(row["decay/gradient"])
            assert all(abs(size - found.decay_ratio()) <= 0.5001 * unit for _, size, unit in sizes)
            assert bool(sizes) == bool(np.isfinite(found.decay_ratio()))


def assert_control(accuracy: str, zeros: str, found: Row) -> None:
    interval = found.accuracy()
    assert interval
    (_, mean, unit), (_, half, other) = read_sizes(accuracy)
    assert mean == pytest.approx(interval.mean, abs=0.5001 * unit)
    assert half == pytest.approx(half_width(interval), abs=0.5001 * other)
    assert (accuracy.startswith("**"), accuracy.partition(", ")[2]) == (
        found.answer == "learns",
        "" if found.answer == "learns" else found.answer,
    )
    counted = [int(number) for number in re.findall(r"\d+", zeros)]
    assert counted[:2] == [found.zero_norms()[0], found.all_zero()[0]]
    assert counted[2:] in ([], [found.zero_norms()[1]])


def test_what_a_measurement_took():
    measured = json.loads((RESULTS / "h200_reproduce.json").read_text(encoding="utf-8"))
    names = {"bp_bottleneck, forward_magnitude": "bp_bottleneck", "together, shared runs once": "together"}
    rows = read_table("| study | runs | worker seconds |", PERFORMANCE)
    for row in rows:
        found = measured["studies"][names.get(row["study"], row["study"])]
        assert (row["runs"], row["worker seconds"]) == (f"{found['runs']:,}", f"{found['worker_seconds']:,.0f}")
    assert len(rows) == len(measured["studies"]) - 1
    first, second = (command["seconds"] for command in measured["commands"])
    said = " ".join(PERFORMANCE.split())
    assert f"it took **{measured['wall_seconds']:,.0f} s, {measured['wall_seconds'] / 60:.1f} minutes**" in said
    assert f"one of {first:.0f} s that its `--time-limit` stopped, and one of {second:.0f} s" in said


def test_what_was_not_finished(records):
    """Its commands add up, and what they trained is what is shipped of that commit."""
    said = " ".join(PERFORMANCE.split())
    commands = r"three commands of ([\d.]+), ([\d.]+) and ([\d.]+) s \(([\d,]+) s together\)"
    found = re.search(commands + r".*? trained ([\d,]+) of", said)
    assert found
    *seconds, together, trained = (float(text.replace(",", "")) for text in found.groups())
    assert round(sum(seconds)) == together
    commits = Counter(record.provenance.commit for record in records)
    assert trained == commits.most_common()[0][1]
    assert f"beside {len(records) - trained:.0f} of the finished measurement" in said


class TestTrainedTwice:
    TWICE = json.loads((RESULTS / "h200_twice.json").read_text(encoding="utf-8"))["runs"]

    def test_the_third_time_is_the_one_shipped(self, records):
        """Beside the second; runs that several variants of BP could be are left out, as the page says."""
        shipped = defaultdict(list)
        for record in records:
            if (spec := record.spec) and spec.net == "gcn" and not spec.frozen:
                shipped[spec.task, spec.rule, spec.net_options["depth"], spec.seed, spec.epochs].append(record)
        moved, found = defaultdict(float), 0
        for run in self.TWICE:
            same = shipped[tuple(run[key] for key in ("task", "rule", "depth", "seed", "epochs"))]
            found += len(same) == 1
            if len(same) == 1 and same[0].provenance.status == "complete" and run["accuracy"][1] is not None:
                depth = min(max(run["depth"], 4), 8)
                moved[depth] = max(moved[depth], abs(same[0].last.accuracy - run["accuracy"][1]))
        numbers = [f"{moved[4]:.3f}", f"{moved[6]:.2f}", f"{moved[8]:.2f}"]
        a, b, c = (number.removeprefix("0") for number in numbers)
        said = " ".join(MANUAL.split())
        assert (
            f"against the second, {found} of these runs (all but BP at L = 64) agree to {a} up to four layers" in said
        )
        assert f"and to {b} at six, and from eight on one moved by {c}." in said

    def test_what_is_said_of_them(self):
        said = " ".join(MANUAL.split())
        assert f"{len(self.TWICE)} runs were trained twice" in said
        assert f"{sum(run['same_record'] for run in self.TWICE)} records agree to six digits" in said
        both = [run for run in self.TWICE if None not in run["accuracy"]]
        moved = [(run["depth"], abs(run["accuracy"][1] - run["accuracy"][0])) for run in both]
        shallow = max(by for depth, by in moved if depth <= 4)
        middle = max(by for depth, by in moved if depth == 6)
        deep = max(by for depth, by in moved if depth >= 8)
        means = defaultdict(list)
        for run in both:
            means[str([run[key] for key in ("task", "rule", "depth", "residual", "epochs")])].append(run["accuracy"])
        mean = max(abs(float(np.diff(np.mean(each, axis=0))[0])) for each in means.values() if len(each) == 5)
        numbers = [f"{shallow:.3f}", f"{middle:.2f}", f"{deep:.2f}", f"{mean:.2f}"]
        a, b, c, d = (number.removeprefix("0") for number in numbers)
        assert f"agree to {a} up to four layers and to {b} at six; from eight on one moved by {c}" in said
        assert f"a mean over five seeds by {d}." in said
