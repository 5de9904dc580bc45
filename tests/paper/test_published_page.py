"""What is read from runs for the page of published numbers, and that the page says it."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from paper_runs import run_of
from published_runs import change, entry, everything, is_seed, numbers
from scipy import stats

from creditscope.paper.published.compare import compare_settings, tally
from creditscope.paper.published.numbers import DATA, PUBLISHED, SETTINGS
from creditscope.paper.published.page import render_page, write_reproduction
from creditscope.paper.published.readings import (
    NEVER,
    RunFinder,
    deep,
    first_epoch,
    first_is_best,
    greatest_growth,
    grows,
    never,
    pair_accepts,
    under_floor,
)
from creditscope.paper.studies.penalty_rescue import find_early
from creditscope.record import Record
from creditscope.registry import STUDIES

DFA = next(w for w in STUDIES.get("audit_hero")("paper").runs if w["rule"] == "dfa")


class TestReaders:
    def run(self, *, g=(1.0,) * 6, h=(1.0,) * 6, epochs=(0, 1, 2, 3, 4, 5), **others) -> Record:
        moments = {
            e: {"taps": {"g_norm": (1.0, 1.0, 1.0, 1.0, gl), "h_rms": (1.0, 1.0, 1.0, 1.0, hl)}}
            for e, gl, hl in zip(epochs, g, h, strict=True)
        }
        return run_of(DFA, epochs=epochs, moments=moments, **others)

    def test_first_epochs(self):
        """What fires before training alone never fires; a thinned run gives the middle of what is possible."""
        record = self.run(g=(1.0, 1.0, 5e-5, 1e-5, 1e-5, 1e-5), h=(1.0, 2.0, 3.0, 4.0, 60.0, 70.0))
        read = [first_epoch(under_floor(1024)), first_epoch(under_floor(128)), first_epoch(grows), greatest_growth]
        assert [reader(record) for reader in read] == [2.0, 3.0, 4.0, 70.0]
        assert never(grows)(record) == 0.0
        for calm in (self.run(), self.run(h=(60.0, 1.0, 1.0, 1.0, 1.0, 1.0))):
            assert (first_epoch(grows)(calm), never(grows)(calm)) == (NEVER, 1.0)
        thin = self.run(epochs=(0, 1, 2, 4, 8, 16), h=(1.0, 1.0, 1.0, 1.0, 60.0, 60.0))
        assert first_epoch(grows)(thin) == np.mean([5, 6, 7, 8])

    @pytest.mark.parametrize(
        ("accuracy", "gamma", "accepts"), [(0.3, 0.1, 1.0), (0.3, 0.0, 0.0), (0.1, 0.1, 0.0), (0.05, -0.1, 0.0)]
    )
    def test_the_usual_pair_asks_for_both(self, accuracy, gamma, accepts):
        assert pair_accepts()(self.run(accuracy=accuracy, gamma=gamma)) == accepts

    def test_early_is_before_anything_fires_and_at_latest_epoch_5(self):
        assert find_early(self.run(epochs=(0, 1, 2, 3, 5, 30))).snapshot.epoch == 5
        assert find_early(self.run(h=(1.0, 1.0, 1.0, 60.0, 1.0, 1.0))).snapshot.epoch == 2
        assert find_early(self.run(g=(1.0, 1e-6, 1.0, 1.0, 1.0, 1.0))).snapshot.epoch == 0

    def test_deep_is_the_mean_from_tap_2(self):
        assert deep("cos")(self.run(taps={"cos": (1.0, 1.0, 0.1, 0.2, 0.6)})) == pytest.approx(0.3)

    def test_the_first_condition_is_best_where_it_is_better_and_seeds_without_the_other_are_left_out(self):
        first, other = ({k: v for k, v in {**DFA, "lr": lr}.items() if k != "seed"} for lr in (0.25, 0.5))
        records = [run_of({**first, "seed": seed}, accuracy=0.4) for seed in (1, 2, 3, 4)]
        records += [run_of({**other, "seed": s}, accuracy=value) for s, value in ((1, 0.3), (2, 0.4), (3, 0.5))]
        assert first_is_best(first, other)(RunFinder(records)).by_seed == {1: 1.0, 2: 0.0, 3: 0.0}


def cells_of(records, id: str) -> list[str]:
    """The line of a published number on the page."""
    published = entry(id)
    part = render_page(records)[0].split(f"## {published.part}\n")[1].split("\n## ")[0]
    (line,) = [line for line in part.splitlines() if line.startswith(f"| {published.quantity} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


class TestPage:
    def test_without_records_every_line_says_so(self):
        page, _ = render_page([])
        lines = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| ")]
        assert sum(line[2:4] == ["0", "–"] for line in lines) == len(PUBLISHED)
        for setting in SETTINGS:
            assert re.search(rf"^\| {setting.title} \| .* \| not run \| – \| – \|$", page, re.M)
        assert (page.count("Not on record."), "yes [" in page) == (4, False)
        assert all(f"- {what}\n" in page for what in DATA["not_compared"])

    def test_it_leads_with_what_every_setting_gives(self):
        page, lines = render_page(everything())
        found = tally([compare_settings(p, RunFinder(everything())) for p in PUBLISHED])
        lead = page.split("\n## ")[0]
        assert (len(found.by_setting), lines, lines[0] in lead) == (4, found.lines(), True)
        for one in found.by_setting:
            title = f"**{one.setting.title}**" if one in found.best else one.setting.title
            assert f"| {one.joint} | {one.inside} of {one.answered} | {one.far} |" in lead.split(f"| {title} |")[1]
        assert all(published.quantity in lead for published in found.nowhere)

    def test_numbers_are_those_of_the_records(self):
        accuracies = [0.29 + 0.002 * i for i in range(20)]
        records = change("acc-dfa", accuracy=lambda i: accuracies[i])
        cells, by_seed = cells_of(records, "acc-dfa"), entry("acc-dfa").reading(RunFinder(records)).by_seed
        ours = [by_seed[seed] for seed in (42, 123, 456)]
        assert cells[1:3] == ["0.306 ± 0.008 (m = 3)", "3"]
        measured, _, answer = cells[3].partition("; ")
        half = stats.t.ppf(0.975, 2) * stats.sem(ours)
        assert numbers(measured) == pytest.approx([np.mean(ours), half], abs=5e-5)
        found = compare_settings(entry("acc-dfa"), RunFinder(records)).under["none"]
        assert answer.startswith("yes [" if found.inside else "**no** [")
        assert numbers(answer)[:2] == pytest.approx([found.low, found.high], abs=5e-5)
        half = stats.t.ppf(0.975, 19) * stats.sem(accuracies)
        assert numbers(cells[7])[:3] == pytest.approx([np.mean(accuracies), half, 20], abs=5e-5)

    def test_other_conditions_are_named_where_ours_is_outside_on_the_same_seeds(self):
        id = "cos-wide-dfa-1"
        cells = cells_of(change(id, taps=lambda i: {"cos": (0.5, 0.4 + 0.001 * i, 0.1, 0.1, 0.1)}), id)
        assert ("**no**" in cells[3], bool(re.match(r"width 256: \S+ ± \S+, n = 3, ", cells[8]))) == (True, True)
        cells = cells_of(change(id, taps=lambda i: {"cos": (0.5, 0.01 * (i - 1), 0.1, 0.1, 0.1)}), id)
        assert ("yes" in cells[3], cells[8]) == (True, "")

    def test_a_number_that_no_convention_changes_is_said_once(self):
        cells = cells_of(everything(), "acc-bp")
        assert (cells[2], cells[4:7]) == ("20", ["the same"] * 3)

    @pytest.mark.parametrize(
        ("id", "decimals"), [("acc-wide-bp", 4), ("cos-wide-dfa-3", 4), ("acc-random", 4), ("growth-student", 2)]
    )
    def test_as_many_digits_for_numbers_of_a_kind(self, id, decimals):
        assert re.match(rf"-?\d+\.\d{{{decimals}}} ± \d+\.\d{{{decimals}}};", cells_of(everything(), id)[3])

    @pytest.mark.parametrize(("rows", "answer"), [(128, "; yes"), (1024, "; **no**")])
    def test_norms_are_divided_by_the_rows_they_name(self, rows, answer):
        sizes = [4.2e-4 * (1 + 0.01 * (i - 10)) for i in range(20)]
        cells = cells_of(change("g4-bp", taps=lambda i: {"g_norm": (1.0, 1.0, 1.0, 1.0, rows * sizes[i])}), "g4-bp")
        assert numbers(cells[3])[0] == pytest.approx(4.2e-4 * rows / 128, rel=0.02)
        assert answer in cells[3]
        other = re.search(r"N = 1,024: 4\.2e-4 \[[^]]*\], n = 20, inside", cells[8])
        assert bool(other) is (rows == 1024)

    def test_diverged_runs_are_counted(self):
        records = [
            replace(r, provenance=replace(r.provenance, status="diverged")) if is_seed(r, "dfa", (42, 123)) else r
            for r in everything()
        ]
        cells = cells_of(records, "acc-dfa")
        assert ("(2 diverged)" in cells[3], numbers(cells[7].partition(", n = ")[2])[0]) == (True, 18)

    def test_the_page_is_written_whole_and_again_alike(self, tmp_path):
        path, written = tmp_path / "docs/page.md", []
        for _ in range(2):
            write_reproduction(everything(), path, root=tmp_path)
            written.append(path.read_text())
        assert written[0] == written[1]
        assert f"{len(everything()):,} runs on record" in written[0]
        assert not re.search(r"None|nan", written[0])

    def test_it_needs_no_torch(self):
        code = "import sys\nfrom creditscope.paper.published.page import render_page\nrender_page([])\n"
        code += "assert 'torch' not in sys.modules"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
