"""The table of published numbers: what is compared, when it is inside, and that the page says what records say."""

import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from paper_runs import run_of
from reproduced import change, entry, everything, is_seed
from scipy import stats

from creditscope.auditing.early import find_early
from creditscope.record import Record
from creditscope.registry import STUDIES
from creditscope.reproduction import write_reproduction
from creditscope.reproduction._readers import (
    NEVER,
    deep,
    first_epoch,
    greatest_growth,
    grows,
    never,
    pair_accepts,
    under_floor,
)
from creditscope.reproduction._readings import Values, first_is_best
from creditscope.reproduction._shelf import Shelf
from creditscope.reproduction.compare import Published, compare
from creditscope.reproduction.page import render_page
from creditscope.reproduction.published import NOT_COMPARED, PUBLISHED, WHERE
from creditscope.studies.graph_depth import graph_depth
from creditscope.studies.reproduction import SCALES

LACKING = {p.id for p in PUBLISHED if p.part.startswith("Deep GCNs")}


def row_of(page: str, published: Published) -> list[str]:
    part = page.split(f"## {published.part}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith(f"| {published.quantity} |")]
    assert len(lines) == 1
    return [cell.strip() for cell in lines[0].strip("|").split("|")]


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"[+-]?\d+\.?\d*(?:e-?\d+)?", text)]


class TestInside:
    def made(self, *said: str, n: int | None = 3, **others) -> Published:
        return replace(entry("acc-bp"), said=said, n=n, **others)

    def values(self, *numbers: float, lacking=()) -> Values:
        return Values(dict(enumerate(numbers)), lacking)

    def test_the_prediction_interval_is_that_of_scipy(self):
        ours = (0.60, 0.61, 0.63, 0.62)
        mean, sd = np.mean(ours), np.std(ours, ddof=1)
        for m in (1, 3, 20):
            low, high = stats.t.interval(0.95, 3, loc=mean, scale=sd * math.sqrt(1 / 4 + 1 / m))
            found = compare(self.made("0.615", n=m), self.values(*ours))
            assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)
            assert found.half == pytest.approx(stats.t.ppf(0.975, 3) * sd / 2)
            assert found.inside
            assert compare(self.made(f"{high + 0.002:.3f}", n=m), self.values(*ours)).inside is False
            assert compare(self.made(f"{low - 0.002:.3f}", n=m), self.values(*ours)).inside is False
        assert compare(self.made("0.615", n=None), self.values(*ours)).low == pytest.approx(
            compare(self.made("0.615", n=1), self.values(*ours)).low
        )

    def test_sizes_are_compared_by_their_logarithm(self):
        ours = (1e6, 1e8, 1e7)
        sized = self.made("4e8", n=1, scale="log10", accuracy=False)
        found = compare(sized, self.values(*ours))
        low, high = stats.t.interval(0.95, 2, loc=7.0, scale=1.0 * math.sqrt(1 / 3 + 1))
        assert found.mean == pytest.approx(1e7)
        assert (found.low, found.high) == pytest.approx((10**low, 10**high))
        assert found.inside
        assert compare(sized, self.values(1e6, 1.1e6, 1.2e6)).inside is False
        assert compare(sized, self.values(0.0, 1e8, 1e8)).inside is False

    def test_a_published_number_stands_for_all_that_round_to_it(self):
        exact = (0.99999994, 0.99999995, 0.99999996)
        assert compare(self.made("1.000", n=1), self.values(*exact)).inside
        assert compare(self.made("0.999", n=1), self.values(*exact)).inside is False
        about = self.made("2e2", n=1, scale="log10", accuracy=False)
        assert compare(about, self.values(240.0, 240.1, 240.2)).inside
        assert compare(about, self.values(260.0, 260.1, 260.2)).inside is False

    def test_ranges_seeds_and_claims(self):
        ranged = self.made("3", "4", kind="range", n=None)
        assert compare(ranged, self.values(3.0, 4.0, 3.0)).inside
        assert compare(ranged, self.values(9.0, 9.0, 9.1)).inside is False
        each = self.made("0.256", "0.202", "0.253", kind="seeds", n=None)
        assert (each.seeds, each.bounds()) == (3, pytest.approx((0.2365, 0.2375)))
        claim = self.made("never", kind="claim")
        assert compare(claim, self.values(1.0, 1.0)).inside
        assert compare(claim, self.values(1.0, 0.0)).inside is False

    def test_what_cannot_be_said_is_not_said(self):
        assert compare(self.made("0.615"), self.values()).inside is None
        single = compare(self.made("0.615"), self.values(0.62))
        assert (single.inside, single.close) == (None, True)
        never_fires = ((NEVER, 2),)
        assert compare(self.made("3", "4", kind="range"), self.values(3.0, 4.0, lacking=never_fires)).inside is False
        assert compare(self.made("3", "4", kind="range"), self.values(lacking=never_fires)).inside is False

    @pytest.mark.parametrize(
        ("ours", "close"), [(0.586, True), (0.58, False), (0.62, True), (0.654, True), (0.66, False)]
    )
    def test_a_range_is_as_far_away_as_its_nearer_end(self, ours, close):
        published = self.made("0.60", "0.64", kind="range", accuracy=True)
        assert compare(published, self.values(ours)).close is close

    @pytest.mark.parametrize(("shift", "close"), [(0.014, True), (-0.014, True), (0.017, False), (-0.017, False)])
    def test_accuracies_within_a_point_and_a_half(self, shift, close):
        ours = [0.615 + shift + d for d in (-1e-4, 0, 1e-4)]
        assert compare(self.made("0.615"), self.values(*ours)).close is close


class TestSelectors:
    def test_ids_are_unique_and_every_part_says_where(self):
        assert len({p.id for p in PUBLISHED}) == len(PUBLISHED)
        assert {p.part for p in PUBLISHED} == set(WHERE)
        assert set(NOT_COMPARED) <= set(WHERE)

    def test_the_studies_hold_a_run_for_every_number_on_images(self):
        shelf = Shelf(everything())
        lacking = {p.id for p in PUBLISHED if not p.reading(shelf).by_seed}
        epochs = {p.id for p in PUBLISHED if p.id.startswith(("floor-", "growth-")) and p.id != "growth-student"}
        assert lacking - LACKING <= epochs  # read from runs that have two snapshots here and never fire
        for id in epochs & lacking:
            assert entry(id).reading(shelf).lacking, id

    def test_the_studies_hold_a_run_for_every_number_on_graphs(self):
        runs = [*graph_depth("paper", tasks=("cora",), seeds=(42,)).runs, *STUDIES.get("reproduction")("paper").runs]
        shelf = Shelf([run_of(w) for w in runs if w["net"] == "gcn" and w["seed"] == 42])
        for published in PUBLISHED:
            if published.id in LACKING:
                readings = [published.reading, *(a.reading for a in published.alternatives)]
                assert [list(reading(shelf).by_seed) for reading in readings] == [[42]] * len(readings), published.id

    def test_only_the_published_scale_needs_a_graph_from_disk(self):
        tasks = {scale: {w["task"] for w in STUDIES.get("reproduction")(scale).runs} for scale in SCALES}
        embedded = {"mnist1d", "teacher"}
        assert tasks == {"demo": embedded, "paper": {"cifar10", "teacher", "cora"}, "test": embedded}

    def test_no_condition_is_read_twice_under_two_names(self):
        """The accuracies are told apart by condition, so equal means would be one run taken for another."""
        shelf, alike = Shelf(everything()), {}
        for published in PUBLISHED:
            if published.accuracy and published.id not in LACKING and published.id != "gain-bp":
                for label, reading in [
                    ("", published.reading),
                    *((a.label, a.reading) for a in published.alternatives),
                ]:
                    values = reading(shelf).numbers
                    if values:
                        assert np.ptp(values) < 0.001, (published.id, label)
                        alike.setdefault(round(float(np.mean(values)), 5), set()).add((published.id, label))
        names = [{id for id, label in found if not label} for found in alike.values()]
        assert all(len(found) <= 1 for found in names), names

    def test_normalised_credit_is_another_run(self):
        shelf = Shelf(everything())
        published = entry("acc-dfa")
        assert published.reading(shelf)
        assert {r.spec.credit_norm for r in shelf.read.values()} == {"none"}
        by_label = {a.label: a for a in published.alternatives}
        for norm in ("batch", "sample"):
            own = Shelf(everything())
            assert by_label[f"credit norm {norm}"].reading(own).by_seed.keys() == {42, 123, 456}
            assert {r.spec.credit_norm for r in own.read.values()} == {norm}


class TestReaders:
    def run(self, *, g=(1.0,) * 6, h=(1.0,) * 6, epochs=(0, 1, 2, 3, 4, 5), **others) -> Record:
        wanted = next(w for w in STUDIES.get("audit_hero")("paper").runs if w["rule"] == "dfa")
        moments = {
            e: {"taps": {"g_norm": (1.0, 1.0, 1.0, 1.0, gl), "h_rms": (1.0, 1.0, 1.0, 1.0, hl)}}
            for e, gl, hl in zip(epochs, g, h, strict=True)
        }
        return run_of(wanted, epochs=epochs, moments=moments, **others)

    def test_first_epochs(self):
        record = self.run(g=(1.0, 1.0, 5e-5, 1e-5, 1e-5, 1e-5), h=(1.0, 2.0, 3.0, 4.0, 60.0, 70.0))
        assert first_epoch(under_floor(1024))(record) == 2.0
        assert first_epoch(under_floor(128))(record) == 3.0
        assert first_epoch(grows)(record) == 4.0
        assert greatest_growth(record) == 70.0
        assert never(grows)(record) == 0.0
        assert first_epoch(grows)(self.run()) == NEVER
        assert never(grows)(self.run()) == 1.0

    def test_what_fires_before_training_alone_never_fires(self):
        record = self.run(h=(60.0, 1.0, 1.0, 1.0, 1.0, 1.0))
        assert (first_epoch(grows)(record), never(grows)(record)) == (NEVER, 1.0)

    @pytest.mark.parametrize(
        ("accuracy", "gamma", "accepts"), [(0.3, 0.1, 1.0), (0.3, 0.0, 0.0), (0.1, 0.1, 0.0), (0.05, -0.1, 0.0)]
    )
    def test_the_usual_pair_asks_for_both(self, accuracy, gamma, accepts):
        record = self.run()
        last = replace(record.last, accuracy=accuracy, gamma=gamma)
        assert pair_accepts(replace(record, snapshots=(*record.snapshots[:-1], last))) == accepts

    def test_a_thinned_run_gives_the_middle_of_what_is_possible(self):
        thin = self.run(epochs=(0, 1, 2, 4, 8, 16), h=(1.0, 1.0, 1.0, 1.0, 60.0, 60.0))
        assert first_epoch(grows)(thin) == np.mean([5, 6, 7, 8])
        assert first_epoch(grows)(self.run(epochs=(0, 1, 2, 3, 8, 16), h=(1.0, 1.0, 1.0, 60.0, 60.0, 60.0))) == 3.0

    def test_early_is_before_anything_fires_and_at_latest_epoch_5(self):
        assert find_early(self.run()).snapshot.epoch == 5
        assert find_early(self.run(epochs=(0, 1, 2, 3, 5, 30))).snapshot.epoch == 5
        assert find_early(self.run(h=(1.0, 1.0, 1.0, 60.0, 1.0, 1.0))).snapshot.epoch == 2
        assert find_early(self.run(g=(1.0, 1e-6, 1.0, 1.0, 1.0, 1.0))).snapshot.epoch == 0

    def test_deep_is_the_mean_from_tap_2(self):
        record = self.run(taps={"cos": (1.0, 1.0, 0.1, 0.2, 0.6)})
        assert deep("cos")(record) == pytest.approx(0.3)


def test_the_first_condition_is_best_only_where_it_is_better_and_seeds_without_the_other_are_left_out():
    own = next(w for w in STUDIES.get("audit_hero")("paper").runs if w["rule"] == "dfa")
    first, other = ({k: v for k, v in {**own, "lr": lr}.items() if k != "seed"} for lr in (0.25, 0.5))
    accuracies = {1: (0.4, 0.3), 2: (0.4, 0.4), 3: (0.4, 0.5), 4: (0.4, None)}
    records = [
        run_of({**wanted, "seed": seed}, accuracy=value)
        for seed, pair in accuracies.items()
        for wanted, value in zip((first, other), pair, strict=True)
        if value is not None
    ]
    assert first_is_best([first, other])(Shelf(records)).by_seed == {1: 1.0, 2: 0.0, 3: 0.0}


class TestPage:
    def test_without_records_every_row_says_so(self):
        page = render_page([])
        for published in PUBLISHED:
            cells = row_of(page, published)
            assert cells[2:5] == ["not on record", "0", "–"]
        assert f"{len(PUBLISHED)} have no run on record" in page
        assert page.count("Not on record.") == 4
        assert "| yes |" not in page
        assert "0 runs on record" in page

    def test_numbers_are_those_of_the_records(self):
        published = entry("acc-dfa")
        accuracies = [0.29 + 0.002 * i for i in range(20)]
        page = render_page(change("acc-dfa", accuracy=lambda i: accuracies[i]))
        cells = row_of(page, published)
        half = stats.t.ppf(0.975, 19) * stats.sem(accuracies)
        assert cells[1] == "0.306 ± 0.008 (n = 3)"
        assert numbers(cells[2]) == pytest.approx([np.mean(accuracies), half], abs=5e-5)
        assert cells[3] == "20"
        reach = stats.t.ppf(0.975, 19) * np.std(accuracies, ddof=1) * math.sqrt(1 / 20 + 1 / 3)
        assert cells[4].startswith("yes [")
        assert cells[4].endswith("within 1.5 pp")
        ends = [np.mean(accuracies) - reach, np.mean(accuracies) + reach]
        assert numbers(cells[4])[:2] == pytest.approx(ends, abs=5e-5)
        assert cells[5] == ""

    def test_what_is_outside_names_what_was_run_instead(self):
        published = entry("h-dfa")
        far = change("h-dfa", taps=lambda i: {"h_norm": (8.0, 9.0, 1e2, 1e4, 1.0e7 + 1e5 * i)})
        cells = row_of(render_page(far), published)
        assert cells[4].startswith("**no**")
        assert cells[5].startswith("credit norm batch: 1.1e1 [1.1e1, 1.1e1], n = 3, not inside<br>credit norm sample")
        near = change("h-dfa", taps=lambda i: {"h_norm": (8.0, 9.0, 1e2, 1e4, 3.0e8 + 2e7 * i)})
        cells = row_of(render_page(near), published)
        assert cells[4].startswith("yes")
        few = [r for r in far if r.spec.credit_norm == "none"]
        assert row_of(render_page(few), published)[5] == "credit norm batch: not run<br>credit norm sample: not run"

    def test_an_accuracy_inside_a_wide_interval_alone_names_them_too(self):
        published = entry("acc-dfa")
        wide = change("acc-dfa", accuracy=lambda i: 0.40 if i % 2 else 0.25)
        cells = row_of(render_page(wide), published)
        assert re.fullmatch(r"yes \[.*\]; not within 1.5 pp", cells[4])
        assert cells[5].startswith("credit norm batch: ")
        few = [r for r in wide if r.spec.credit_norm == "none" and r.spec.net_options.get("width") != 512]
        assert row_of(render_page(few), published)[5] == ""

    @pytest.mark.parametrize(
        ("id", "decimals"), [("acc-wide-bp", 4), ("cos-dfa-3", 4), ("acc-random", 4), ("growth-student", 2)]
    )
    def test_as_many_digits_for_numbers_of_a_kind(self, id, decimals):
        cells = row_of(render_page(everything()), entry(id))
        assert re.fullmatch(rf"-?\d+\.\d{{{decimals}}} ± \d+\.\d{{{decimals}}}", cells[2])

    def test_norms_are_divided_by_the_rows_they_name(self):
        published = entry("g4-dfa")
        near = change("g4-dfa", taps=lambda i: {"g_norm": (1.0, 1.0, 1.0, 1.0, 128 * 4.2e-9 * (1 + 0.01 * i))})
        cells = row_of(render_page(near), published)
        assert cells[2].startswith("4.6e-9 [")
        assert cells[4].startswith("yes")
        other = change("g4-dfa", taps=lambda i: {"g_norm": (1.0, 1.0, 1.0, 1.0, 1024 * 4.2e-9 * (1 + 0.01 * (i - 10)))})
        cells = row_of(render_page(other), published)
        assert cells[4].startswith("**no**")
        assert re.search(r"mean over N = 1,024: 4\.2e-9 \[[^]]*\], n = 20, inside", cells[5])

    def test_diverged_runs_are_counted(self):
        records = [
            replace(r, provenance=replace(r.provenance, status="diverged")) if is_seed(r, "dfa", (42, 123)) else r
            for r in everything()
        ]
        cells = row_of(render_page(records), entry("acc-dfa"))
        assert cells[2].endswith("(2 diverged)")
        assert cells[3] == "18"

    def test_the_page_is_written_whole_and_again_alike(self, tmp_path):
        first = write_reproduction(everything(), tmp_path / "docs/page.md", root=tmp_path).read_text()
        assert write_reproduction(everything(), tmp_path / "docs/page.md", root=tmp_path).read_text() == first
        assert "creditscope reproduction --records results/paper --out docs/reproduction.md" in first
        assert f"{len(everything()):,} runs on record" in first
        assert "None" not in first
        assert "nan" not in first

    def test_it_needs_no_torch(self):
        code = (
            "import sys\nfrom creditscope.reproduction.page import render_page\n"
            "render_page([])\nassert 'torch' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
