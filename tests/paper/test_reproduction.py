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

from creditscope.errors import CreditscopeError
from creditscope.paper.early import find_early
from creditscope.paper.reproduction import write_reproduction
from creditscope.paper.reproduction._cells import say_others, say_ours
from creditscope.paper.reproduction._conditions import make_condition
from creditscope.paper.reproduction._file import DATA
from creditscope.paper.reproduction._readers import (
    NEVER,
    deep,
    first_epoch,
    greatest_growth,
    grows,
    never,
    pair_accepts,
    under_floor,
)
from creditscope.paper.reproduction._readings import Values, first_is_best
from creditscope.paper.reproduction._settings import SETTINGS
from creditscope.paper.reproduction._shelf import Shelf
from creditscope.paper.reproduction.claims import ask
from creditscope.paper.reproduction.compare import Alternative, Published, compare
from creditscope.paper.reproduction.joint import Row, compare_settings, join, lead_lines
from creditscope.paper.reproduction.page import lead_of, render_page
from creditscope.paper.reproduction.published import NOT_COMPARED, PUBLISHED, WHERE, make_number
from creditscope.paper.studies.graph_depth import graph_depth
from creditscope.paper.studies.reproduction import SCALES as REPRODUCTION
from creditscope.record import Record
from creditscope.registry import STUDIES
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run

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

    def values(self, *numbers: float, lacking: tuple[str, ...] = ()) -> Values:
        return Values(dict(enumerate(numbers)), dict(enumerate(lacking, start=len(numbers))))

    def test_the_prediction_interval_is_that_of_scipy(self):
        ours, unknown = (0.60, 0.61, 0.63, 0.62), {"sd": ""}
        mean, sd = np.mean(ours), np.std(ours, ddof=1)
        for m in (1, 3, 20):
            low, high = stats.t.interval(0.95, 3, loc=mean, scale=sd * math.sqrt(1 / 4 + 1 / m))
            found = compare(self.made("0.615", n=m, **unknown), self.values(*ours))
            assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)
            assert found.half == pytest.approx(stats.t.ppf(0.975, 3) * sd / 2)
            assert found.inside
            assert compare(self.made(f"{high + 0.002:.3f}", n=m, **unknown), self.values(*ours)).inside is False
            assert compare(self.made(f"{low - 0.002:.3f}", n=m, **unknown), self.values(*ours)).inside is False
        assert compare(self.made("0.615", n=None, **unknown), self.values(*ours)).low == pytest.approx(
            compare(self.made("0.615", n=1, **unknown), self.values(*ours)).low
        )

    @pytest.mark.parametrize("sd", ["0.001", "0.004", "0.04"])
    def test_with_a_published_sd_it_is_welchs_test(self, sd):
        ours = (0.60, 0.61, 0.63, 0.62, 0.60)
        mean, own = np.mean(ours), np.std(ours, ddof=1)
        found = compare(self.made("0.615", n=3, sd=sd), self.values(*ours))
        for end in (found.low, found.high):
            test = stats.ttest_ind_from_stats(mean, own, len(ours), end, float(sd), 3, equal_var=False)
            assert test.pvalue == pytest.approx(0.05, rel=1e-6)

    def test_the_sd_of_one_value_per_seed_is_known(self):
        published = self.made("0.3070", "0.2985", "0.2966", kind="seeds", n=None, sd="")
        ours = (0.31, 0.33, 0.32)
        found = compare(published, self.values(*ours))
        theirs = [0.3070, 0.2985, 0.2966]
        assert published.spread == pytest.approx(np.std(theirs, ddof=1))
        interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
        assert found.high - found.mean == pytest.approx((interval.high - interval.low) / 2)

    def test_seeds_that_do_not_differ_have_an_interval_of_nothing(self):
        found = compare(self.made("4", "4", "4", kind="seeds", n=None, sd=""), self.values(4.0, 4.0, 4.0))
        assert (found.low, found.high, found.inside) == (4.0, 4.0, True)

    def test_whole_numbers_per_seed_stand_for_their_mean_alone(self):
        """3.67 is outside, though half an epoch less would not be."""
        found = compare(self.made("4", "4", "3", kind="seeds", n=None, sd=""), self.values(2.0, 2.0, 2.0))
        assert (found.low, found.high) == pytest.approx((0.57, 3.43), abs=0.005)
        assert found.inside is False

    def test_sizes_are_compared_by_their_logarithm(self):
        ours = (1e6, 1e8, 1e7)
        sized = self.made("4e8", n=1, sd="", scale="log10", accuracy=False)
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
        about = self.made("2e2", n=1, sd="", scale="log10", accuracy=False)
        assert compare(about, self.values(240.0, 240.1, 240.2)).inside
        assert compare(about, self.values(260.0, 260.1, 260.2)).inside is False

    def test_ranges_seeds_and_claims(self):
        ranged = self.made("3", "4", kind="range", n=None, sd="")
        assert compare(ranged, self.values(3.0, 4.0, 3.0)).inside
        assert compare(ranged, self.values(9.0, 9.0, 9.1)).inside is False
        each = self.made("0.256", "0.202", "0.253", kind="seeds", n=None)
        assert (each.seeds, each.bounds()) == (3, pytest.approx((0.237, 0.237)))
        claim = self.made("never", kind="claim")
        assert compare(claim, self.values(1.0, 1.0)).inside
        assert compare(claim, self.values(1.0, 0.0)).inside is False

    def test_what_cannot_be_said_is_not_said(self):
        assert compare(self.made("0.615"), self.values()).inside is None
        single = compare(self.made("0.615"), self.values(0.62))
        assert (single.inside, single.close) == (None, True)
        never_fires = (NEVER, NEVER)
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

    def test_the_studies_hold_a_run_for_every_number_on_images(self):
        """Under the published conventions, too, but for ViTs, early snapshots, and feedback that no block is given."""
        shelf, lacking = Shelf(everything()), {}
        for published in PUBLISHED:
            if published.id not in LACKING:
                for name, reading in published.readings.items():
                    if not reading(shelf).seeds:
                        lacking.setdefault(name, set()).add(published.id)
        vit, early = {"floor-vit", "growth-vit", "acc-vit"}, {"cos-early", "rho-early"}
        only = {"brief-acc-block-fa-strong", *(f"acc-scan-{depth}" for depth in (2, 4, 6, 8, 12))}
        wide = {f"cos-wide-dfa-{tap}" for tap in range(4)}
        assert lacking == {
            "none": only,
            "batch": only | wide | vit,
            "sample": only | wide | vit,
            "published": vit | early,
        }
        without = {p.id for p in PUBLISHED if "published" not in p.readings}
        assert without == {"cos-dfa-4", "cos-strong-dfa-4"}

    def test_bp_is_the_same_under_every_setting(self):
        for published in PUBLISHED:
            fixed = "BP" in published.quantity or published.id in LACKING
            assert published.depends is not fixed, published.id

    def test_a_setting_is_one_choice_for_all_numbers(self):
        norms = {"none": {"none"}, "batch": {"batch"}, "sample": {"sample"}, "published": {"sample", "sample-mean"}}
        for name, allowed in norms.items():
            shelf = Shelf(everything())
            for published in PUBLISHED:
                if published.depends and published.id != "rho-control" and name in published.readings:
                    published.readings[name](shelf)
            specs = [r.spec for r in shelf.read.values()]
            assert {spec.credit_norm for spec in specs} == allowed
            by_input = {spec.rule_options.get("index") for spec in specs if spec.rule == "dfa" and not spec.frozen}
            assert by_input == ({"input"} if name == "published" else {None})
            assert {spec.targets for spec in specs} == {"true", "redrawn" if name == "published" else "random"}

    @pytest.mark.slow
    def test_of_frozen_blocks_the_index_changes_nothing(self, tmp_path):
        """So one run serves the published conventions and credit norm sample."""
        net, quick = {"depth": 2, "width": 8}, {"tier": "quick", "eval_rows": 32, "snapshot_every": 0}
        fields = {"task": "digits", "net_options": net, "epochs": 1, "credit_norm": "sample", "frozen": True, **quick}
        specs = [plan_run(rule="dfa", rule_options=options, **fields) for options in ({}, {"index": "input"})]
        one, other = run_all(specs, tmp_path, jobs=1, device="cpu")
        assert (one.last.loss, one.last.correct) == (other.last.loss, other.last.correct)
        assert one.spec != other.spec

    @pytest.mark.parametrize(
        ("id", "ours", "published"),
        [
            ("cos-block-fa-0", ("cos", [1]), ("cos_input", [1])),
            ("cos-block-fa-3", ("cos", [4]), ("cos_input", [4])),
            ("cos-dfa-0", ("cos", [0]), ("cos_input", [1])),
            ("cos-wide-dfa-3", ("cos", [3]), ("cos_input", [4])),
            ("cos-strong", ("cos", [2, 3, 4]), ("cos_input", [3, 4])),
            ("rho-strong", ("rho", [2, 3, 4]), ("rho", [3, 4])),
            ("gamma-dfa", None, ("cos_input", [1, 2, 3, 4])),
        ],
    )
    def test_where_cosines_are_read(self, id, ours, published):
        found = entry(id)
        for name, read in (("none", ours), ("published", published)):
            if read is None:
                continue
            field, taps = read
            values = (0.1, 0.2, 0.4, 0.8, 0.16)
            records = [
                replace(r, snapshots=(replace(r.last, taps=replace(r.last.taps, **{field: values})),))
                for r in everything()
            ]
            mean = np.mean([values[tap] for tap in taps])
            assert set(np.round(found.readings[name](Shelf(records)).numbers, 9)) == {np.round(mean, 9)}

    def test_the_studies_hold_a_run_for_every_number_on_graphs(self):
        runs = [*graph_depth("paper", tasks=("cora",), seeds=(42,)).runs, *STUDIES.get("reproduction")("paper").runs]
        shelf = Shelf([run_of(w) for w in runs if w["net"] == "gcn" and w["seed"] == 42])
        for published in PUBLISHED:
            if published.id in LACKING:
                readings = [published.reading, *(a.reading for a in published.alternatives)]
                assert [list(reading(shelf).by_seed) for reading in readings] == [[42]] * len(readings), published.id

    def test_only_the_published_scale_needs_a_graph_from_disk(self):
        tasks = {scale: {w["task"] for w in STUDIES.get("reproduction")(scale).runs} for scale in REPRODUCTION}
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


class TestFile:
    """What is wrong in `published.toml` is named, with what was expected."""

    def refused(self, make, *names: str) -> str:
        with pytest.raises(CreditscopeError, match=r"published\.toml cannot be used: Expected .*, but got ") as caught:
            make()
        assert all(name in str(caught.value) for name in names), caught.value
        return str(caught.value)

    def number(self, **changed) -> Published:
        entry = {"id": "x", "quantity": "accuracy", "said": "0.3", "condition": "dfa", "read": "accuracy"} | changed
        return make_number({key: value for key, value in entry.items() if value is not None}, "part")

    @pytest.mark.parametrize(
        ("changed", "named"),
        [
            ({"read": "nope"}, ("name of a reader", "'nope'", "at_tap")),
            ({"read": "at_tap cosine 1"}, ("name of a measure", "'cosine'", "cos_input")),
            ({"read": "at_tap cos"}, ("arguments", "tap", "Mend")),
            ({"at_input": "nope"}, ("name of a reader", "'nope'")),
            ({"condition": "nope"}, ("name of a condition", "'nope'", "dfa-wide")),
            ({"condition": ["dfa", "bp"]}, ("as many conditions", "Mend")),
            ({"read": "gain"}, ("as many conditions", "Mend")),
            ({"alternatives": [{"label": "other", "condition": "nope"}]}, ("name of a condition", "'nope'")),
            ({"alternatives": [{"condition": "bp"}]}, ("label", "Add")),
            ({"said": 0.3}, ("digits as text", "0.3", "as printed")),
            ({"said": "O.3"}, ("digits as text", "'O.3'")),
            ({"sd": 0.25}, ("digits as text", "0.25")),
            ({"kind": "seed"}, ("name of a kind", "'seed'", "seeds")),
            ({"scale": "log"}, ("name of a scale", "'log'", "log10")),
            ({"quantity": None}, ("no quantity", "Add")),
            ({"seeds": 3}, ("name of a key", "'seeds'", "alternatives")),
        ],
    )
    def test_a_number(self, changed, named):
        assert self.number().said == ("0.3",)
        assert self.refused(lambda: self.number(**changed), *named).startswith("Number 'x' of ")

    @pytest.mark.parametrize(
        ("entry", "named"),
        [
            ({"from": "nope"}, ("name of a condition", "'nope'", "student")),
            ({"from": "bp", "rul": "dfa"}, ("name of a key", "'rul'", "rule")),
            ({"rule": "dfa"}, ("no from", "Add")),
        ],
    )
    def test_a_condition(self, entry, named):
        assert self.refused(lambda: make_condition("x", entry), *named).startswith("Condition 'x' of ")

    @pytest.mark.parametrize(
        ("changed", "named"),
        [
            ({"check": "nope"}, ("name of a check", "'nope'", "crosses_floor")),
            ({"check": "control"}, ("arguments", "least", "Mend")),
            ({"condition": "nope"}, ("name of a condition", "'nope'")),
        ],
    )
    def test_a_claim(self, changed, named):
        claim = {"text": "x", "condition": "dfa", "check": "control 0.9"}
        assert ask(claim, Shelf([])).holds is None
        assert self.refused(lambda: ask({**claim, **changed}, Shelf([])), *named).startswith("Claim 'x' of ")

    def test_every_condition_is_read(self):
        """Or changed by one that is, or read by an artefact."""
        text = str({key: part for key, part in DATA.items() if key != "conditions"})
        text += str([changed["from"] for changed in DATA["conditions"].values()])
        assert [name for name in DATA["conditions"] if f"'{name}'" not in text] == ["gcn-10-no-decay"]


class TestJoint:
    def of(self, *pairs: tuple[str, dict[str, dict[int, float]]]) -> list[Row]:
        """Rows of accuracies of DFA with values by setting and seed; the published number is 0.306."""
        rows = []
        for id, by_setting in pairs:
            readings = {name: lambda _, found=found: Values(found) for name, found in by_setting.items()}
            published = replace(entry("acc-dfa"), id=id, readings=readings, alternatives=(), sd="")
            rows.append(compare_settings(published, Shelf([])))
        return rows

    def test_all_settings_are_compared_on_the_seeds_that_they_share(self):
        """On 20 seeds ours would be outside; on the three that the other has it is as wide, and inside."""
        many = {seed: 0.34 + 0.02 * (seed % 3 - 1) for seed in range(20)}
        (row,) = self.of(("a", {"none": many, "sample": {seed: 0.30 + 0.01 * seed for seed in (0, 1, 2, 30)}}))
        assert row.seeds == {0, 1, 2}
        assert [row.under[name].n for name in ("none", "batch", "sample")] == [3, 0, 3]
        assert row.answers == {"none": True, "sample": True}
        assert compare(entry("acc-dfa"), Values(many)).inside is False

    def test_a_seed_that_never_fires_is_shared_and_counts(self):
        readings = {"none": lambda _: Values({1: 0.3, 2: 0.31}), "batch": lambda _: Values({1: 0.3}, {2: NEVER})}
        row = compare_settings(replace(entry("acc-dfa"), readings=readings), Shelf([]))
        assert (row.seeds, row.under["none"].n, row.under["batch"].inside) == ({1, 2}, 2, None)

    def test_a_seed_without_a_number_under_one_setting_is_compared_under_none(self):
        """Else the setting that lacks it would be the only one with the wider interval."""
        many = {1: 0.30, 2: 0.31, 3: 0.32, 4: 0.33}
        readings = {
            "none": lambda _: Values(many),
            "batch": lambda _: Values({1: 0.30, 2: 0.31}, {3: "diverged", 4: "not measured", 5: "diverged"}),
            "sample": lambda _: Values({}, dict.fromkeys(many, "diverged")),
        }
        row = compare_settings(replace(entry("acc-dfa"), readings=readings), Shelf([]))
        assert row.seeds == {1, 2}
        assert [row.under[name].n for name in ("none", "batch", "sample")] == [2, 2, 0]
        said = [row.under[name].values.words() for name in ("none", "batch", "sample")]
        assert said == ["", "1 diverged, 1 not measured", "4 diverged"]
        assert numbers(say_ours(row, Shelf([])).partition("n = ")[2])[0] == 4

    def test_other_conditions_with_fewer_seeds_are_beside_ours_on_these(self):
        """On two seeds ours is inside, too, so that the other condition is no reason."""
        ours, two = {1: 0.38, 2: 0.40, 3: 0.39, 4: 0.385}, {1: 0.30, 2: 0.31}
        published = replace(entry("acc-dfa"), sd="", readings={"none": lambda _: Values(ours)})

        def others(found: Values) -> str:
            asked = replace(published, alternatives=(Alternative("longer", lambda _: found),))
            return say_others(compare_settings(asked, Shelf([])), Shelf([]))

        for lacking in ({}, {3: "diverged"}):
            other, _, again = others(Values(two, lacking)).partition("; ours on these ")
            assert (other.split(" ± ")[0], again.split(" ± ")[0]) == ("longer: 0.3050", "0.3900")
            assert ("(1 diverged)" in other) == bool(lacking)
            assert ["n = 2, inside" in text for text in (other, again)] == [True, True]
        assert re.fullmatch(r"longer: 0\.3050 ± \S+, n = 4, inside", others(Values(two | {3: 0.30, 4: 0.31, 9: 0.9})))
        assert others(Values({8: 0.3, 9: 0.31})) == ""

    def test_what_each_setting_gives_jointly(self):
        near, off = {1: 0.305, 2: 0.306, 3: 0.307}, {1: 0.505, 2: 0.506, 3: 0.507}
        rows = self.of(
            ("a", {"none": near, "sample": near}),
            ("b", {"none": off, "sample": near}),
            ("c", {"none": off, "sample": off}),
            ("d", {"none": near}),
            ("e", {}),
        )
        rows.append(replace(rows[1], published=replace(rows[1].published, apart="another recipe")))
        found = join(rows)
        assert (len(found.rows), found.shared) == (5, 3)
        assert {t.setting.name: (t.inside, t.answered, t.joint) for t in found.tallies} == {
            "none": (2, 4, 1),
            "sample": (2, 3, 2),
        }
        assert [one.setting.name for one in found.best] == ["sample"]
        assert ([p.id for p in found.nowhere], [p.id for p in found.silent]) == (["c"], ["e"])
        lines = " ".join(lead_lines(found, 6))
        assert numbers(lines)[:2] == [5, 6]
        assert "sample: 2 of 3 inside, 2 of the 3" in lines

    def test_an_accuracy_inside_a_wide_interval_alone_is_far(self):
        near, wide = {1: 0.305, 2: 0.306, 3: 0.307}, {1: 0.25, 2: 0.40, 3: 0.42}
        found = join(self.of(("a", {"none": wide, "sample": near})))
        assert [(one.inside, one.far) for one in found.tallies] == [(1, 1), (1, 0)]

    def test_gcns_of_another_recipe_are_apart(self):
        apart = {p.id for p in PUBLISHED if p.apart}
        assert apart == {f"gcn-{kind}{depth}" for kind in ("", "residual-") for depth in (32, 64)}
        assert len(join([compare_settings(p, Shelf([])) for p in PUBLISHED]).rows) == len(PUBLISHED) - 4

    def test_without_runs_nothing_is_said_of_any(self):
        found = join([compare_settings(p, Shelf([])) for p in PUBLISHED])
        assert (found.tallies, found.best, found.shared) == ((), [], 0)
        assert len(found.silent) == len(found.rows)


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
        assert pair_accepts()(replace(record, snapshots=(*record.snapshots[:-1], last))) == accepts

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
            assert cells[2:4] == ["0", "–"]
        for setting in SETTINGS:
            assert re.search(rf"^\| {setting.title} \| .* \| not run \| – \| – \|$", page, re.M)
        assert page.count("Not on record.") == 4
        assert "yes [" not in page
        assert "0 runs on record" in page

    def test_it_leads_with_what_every_setting_gives(self):
        page, shelf = render_page(everything()), Shelf(everything())
        found = join([compare_settings(p, shelf) for p in PUBLISHED])
        lead = page.split("\n## ")[0]
        assert len(found.tallies) == 4
        for one in found.tallies:
            title = f"**{one.setting.title}**" if one in found.best else one.setting.title
            assert f"| {one.joint} | {one.inside} of {one.answered} | {one.far} |" in lead.split(f"| {title} |")[1]
        for published in found.nowhere:
            assert published.quantity in lead
        assert lead_of(everything())[0] in lead

    def test_what_is_not_compared_is_named(self):
        page = render_page([])
        for what in NOT_COMPARED:
            assert f"- {what}\n" in page

    def test_numbers_are_those_of_the_records(self):
        published, shared = entry("acc-dfa"), 3
        accuracies = [0.29 + 0.002 * i for i in range(20)]
        records = change("acc-dfa", accuracy=lambda i: accuracies[i])
        cells = row_of(render_page(records), published)
        by_seed = published.reading(Shelf(records)).by_seed
        ours = [by_seed[seed] for seed in (42, 123, 456)]
        half = stats.t.ppf(0.975, shared - 1) * stats.sem(ours)
        assert cells[1:3] == ["0.306 ± 0.008 (m = 3)", str(shared)]
        measured, _, answer = cells[3].partition("; ")
        assert numbers(measured) == pytest.approx([np.mean(ours), half], abs=5e-5)
        row = compare_settings(published, Shelf(records))
        assert answer.startswith("yes [" if row.answers["none"] else "**no** [")
        assert numbers(answer)[:2] == pytest.approx([row.under["none"].low, row.under["none"].high], abs=5e-5)
        assert numbers(cells[7])[:3] == pytest.approx(
            [np.mean(accuracies), stats.t.ppf(0.975, 19) * stats.sem(accuracies), 20], abs=5e-5
        )

    def test_other_conditions_are_named_where_ours_is_outside_on_the_same_seeds(self):
        published = entry("cos-wide-dfa-1")
        far = change("cos-wide-dfa-1", taps=lambda i: {"cos": (0.5, 0.4 + 0.001 * i, 0.1, 0.1, 0.1)})
        cells = row_of(render_page(far), published)
        assert "**no**" in cells[3]
        assert re.match(r"width 256: \S+ ± \S+, n = 3, ", cells[8])
        near = change("cos-wide-dfa-1", taps=lambda i: {"cos": (0.5, 0.01 * (i - 1), 0.1, 0.1, 0.1)})
        cells = row_of(render_page(near), published)
        assert "yes" in cells[3]
        assert cells[8] == ""

    def test_a_number_that_no_convention_changes_is_said_once(self):
        cells = row_of(render_page(everything()), entry("acc-bp"))
        assert cells[2] == "20"
        assert cells[4:7] == ["the same"] * 3

    @pytest.mark.parametrize(
        ("id", "decimals"), [("acc-wide-bp", 4), ("cos-wide-dfa-3", 4), ("acc-random", 4), ("growth-student", 2)]
    )
    def test_as_many_digits_for_numbers_of_a_kind(self, id, decimals):
        cells = row_of(render_page(everything()), entry(id))
        assert re.match(rf"-?\d+\.\d{{{decimals}}} ± \d+\.\d{{{decimals}}};", cells[3])

    def test_norms_are_divided_by_the_rows_they_name(self):
        published = entry("g4-bp")
        near = change("g4-bp", taps=lambda i: {"g_norm": (1.0, 1.0, 1.0, 1.0, 128 * 4.2e-4 * (1 + 0.01 * i))})
        cells = row_of(render_page(near), published)
        assert cells[3].startswith("4.6e-4 [")
        assert "; yes" in cells[3]
        other = change("g4-bp", taps=lambda i: {"g_norm": (1.0, 1.0, 1.0, 1.0, 1024 * 4.2e-4 * (1 + 0.01 * (i - 10)))})
        cells = row_of(render_page(other), published)
        assert "; **no**" in cells[3]
        assert re.search(r"mean over N = 1,024: 4\.2e-4 \[[^]]*\], n = 20, inside", cells[8])

    def test_diverged_runs_are_counted(self):
        records = [
            replace(r, provenance=replace(r.provenance, status="diverged")) if is_seed(r, "dfa", (42, 123)) else r
            for r in everything()
        ]
        cells = row_of(render_page(records), entry("acc-dfa"))
        assert "(2 diverged)" in cells[3]
        assert numbers(cells[7].partition(", n = ")[2])[0] == 18

    def test_the_page_is_written_whole_and_again_alike(self, tmp_path):
        first = write_reproduction(everything(), tmp_path / "docs/page.md", root=tmp_path).read_text()
        assert write_reproduction(everything(), tmp_path / "docs/page.md", root=tmp_path).read_text() == first
        assert "creditscope reproduction --records results/paper --out docs/reproduction.md" in first
        assert f"{len(everything()):,} runs on record" in first
        assert "None" not in first
        assert "nan" not in first

    def test_it_needs_no_torch(self):
        code = (
            "import sys\nfrom creditscope.paper.reproduction.page import render_page\n"
            "render_page([])\nassert 'torch' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
