"""The page of published numbers: what is compared, when it is inside, and that the page says what records say."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from paper_runs import run_of
from published_runs import entry, everything, numbers
from scipy import stats

from creditscope.errors import CreditscopeError
from creditscope.paper.published.compare import NumberUnderAll, compare, compare_settings, tally
from creditscope.paper.published.findings import ask
from creditscope.paper.published.numbers import DATA, PUBLISHED, Published, make_condition, make_number
from creditscope.paper.published.page import say_others, say_ours
from creditscope.paper.published.readings import NEVER, RunFinder, Values
from creditscope.paper.studies.graph_depth import graph_depth
from creditscope.paper.studies.reproduction import SCALES as REPRODUCTION
from creditscope.registry import STUDIES
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run

ON_GRAPHS = {p.id for p in PUBLISHED if p.part.startswith("Deep GCNs")}
DFA = next(w for w in STUDIES.get("audit_hero")("paper").runs if w["rule"] == "dfa")
OURS = (0.60, 0.61, 0.63, 0.62)


def said(*digits: str, n: int | None = None, sd: str = "", **others) -> Published:
    return replace(entry("acc-bp"), said=digits, n=n, sd=sd, **others)


def held(published: Published, *ours: float, lacking: tuple[str, ...] = ()):
    return compare(published, Values(dict(enumerate(ours)), dict(enumerate(lacking, start=len(ours)))))


class TestInside:
    @pytest.mark.parametrize("m", [1, 3, 20])
    def test_the_prediction_interval_is_that_of_scipy(self, m):
        low, high = stats.t.interval(0.95, 3, loc=np.mean(OURS), scale=np.std(OURS, ddof=1) * math.sqrt(1 / 4 + 1 / m))
        found = held(said("0.615", n=m), *OURS)
        assert (found.low, found.high, found.inside) == (pytest.approx(low), pytest.approx(high), True)
        assert found.half == pytest.approx(stats.t.ppf(0.975, 3) * stats.sem(OURS))
        assert [held(said(f"{end:.3f}", n=m), *OURS).inside for end in (low - 0.002, high + 0.002)] == [False, False]
        if m == 1:
            assert held(said("0.615"), *OURS) == found

    @pytest.mark.parametrize("sd", ["0.001", "0.004", "0.04"])
    def test_with_a_published_sd_it_is_welchs_test(self, sd):
        found, own = held(said("0.615", n=3, sd=sd), *OURS), np.std(OURS, ddof=1)
        for end in (found.low, found.high):
            test = stats.ttest_ind_from_stats(np.mean(OURS), own, 4, end, float(sd), 3, equal_var=False)
            assert test.pvalue == pytest.approx(0.05, rel=1e-6)

    def test_the_sd_of_one_value_per_seed_is_known(self):
        ours, theirs = (0.31, 0.33, 0.32), [0.3070, 0.2985, 0.2966]
        found = held(said("0.3070", "0.2985", "0.2966", kind="seeds"), *ours)
        interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
        assert found.high - found.mean == pytest.approx((interval.high - interval.low) / 2)
        found = held(said("4", "4", "4", kind="seeds"), 4.0, 4.0, 4.0)
        assert (found.low, found.high, found.inside) == (4.0, 4.0, True)

    def test_whole_numbers_per_seed_stand_for_their_mean_alone(self):
        """3.67 is outside, though half an epoch less would not be."""
        found = held(said("4", "4", "3", kind="seeds"), 2.0, 2.0, 2.0)
        assert (found.low, found.high, found.inside) == (
            pytest.approx(0.57, abs=0.005),
            pytest.approx(3.43, abs=0.005),
            False,
        )

    def test_sizes_are_compared_by_their_logarithm(self):
        sized = said("4e8", n=1, scale="log10", accuracy=False)
        found = held(sized, 1e6, 1e8, 1e7)
        low, high = stats.t.interval(0.95, 2, loc=7.0, scale=math.sqrt(1 / 3 + 1))
        assert (found.mean, found.low, found.high) == pytest.approx((1e7, 10**low, 10**high))
        assert found.inside
        assert [held(sized, *ours).inside for ours in ((1e6, 1.1e6, 1.2e6), (0.0, 1e8, 1e8))] == [False, False]

    @pytest.mark.parametrize(
        ("published", "ours", "inside"),
        [
            (said("1.000", n=1), (0.99999994, 0.99999995, 0.99999996), True),
            (said("0.999", n=1), (0.99999994, 0.99999995, 0.99999996), False),
            (said("2e2", n=1, scale="log10", accuracy=False), (240.0, 240.1, 240.2), True),
            (said("2e2", n=1, scale="log10", accuracy=False), (260.0, 260.1, 260.2), False),
            (said("3", "4", kind="range"), (3.0, 4.0, 3.0), True),
            (said("3", "4", kind="range"), (9.0, 9.0, 9.1), False),
            (said("never", kind="claim"), (1.0, 1.0), True),
            (said("never", kind="claim"), (1.0, 0.0), False),
            (said("0.615"), (), None),
            (said("0.615"), (0.62,), None),
        ],
    )
    def test_what_a_published_number_stands_for(self, published, ours, inside):
        """All that round to it, a range for all within it; a claim holds in every seed."""
        assert held(published, *ours).inside is inside

    def test_what_never_fires_is_outside(self):
        ranged = said("3", "4", kind="range")
        assert [held(ranged, *ours, lacking=(NEVER,)).inside for ours in ((3.0, 4.0), ())] == [False, False]

    @pytest.mark.parametrize(
        ("digits", "ours", "close"),
        [(["0.60", "0.64"], ours, close) for ours, close in ((0.586, True), (0.58, False), (0.62, True), (0.66, False))]
        + [(["0.615"], 0.615 + away, abs(away) < 0.015) for away in (0.014, -0.014, 0.017, -0.017)],
    )
    def test_accuracies_within_a_point_and_a_half_of_the_nearer_end(self, digits, ours, close):
        assert held(said(*digits, kind="range" if len(digits) > 1 else "value"), ours).close is close


class TestSelectors:
    def test_the_studies_hold_a_run_for_every_number_on_images(self):
        """Under the published conventions, too, but for ViTs, early snapshots, and feedback that no block is given."""
        assert len({p.id for p in PUBLISHED}) == len(PUBLISHED)
        finder, lacking = RunFinder(everything()), {}
        for published in PUBLISHED:
            if published.id not in ON_GRAPHS:
                for name, reading in published.readings.items():
                    if not reading(finder).seeds:
                        lacking.setdefault(name, set()).add(published.id)
        vit, early = {"floor-vit", "growth-vit", "acc-vit"}, {"cos-early", "rho-early"}
        only = {"brief-acc-block-fa-strong", *(f"acc-scan-{depth}" for depth in (2, 4, 6, 8, 12))}
        both = only | vit | {f"cos-wide-dfa-{tap}" for tap in range(4)}
        assert lacking == {"none": only, "batch": both, "sample": both, "published": vit | early}
        assert {p.id for p in PUBLISHED if "published" not in p.readings} == {"cos-dfa-4", "cos-strong-dfa-4"}

    def test_a_setting_is_one_choice_for_all_numbers_and_bp_is_the_same_under_every(self):
        norms = {"none": {"none"}, "batch": {"batch"}, "sample": {"sample"}, "published": {"sample", "sample-mean"}}
        for name, allowed in norms.items():
            finder = RunFinder(everything())
            for published in PUBLISHED:
                assert published.depends is not ("BP" in published.quantity or published.id in ON_GRAPHS), published.id
                if published.depends and published.id != "rho-control" and name in published.readings:
                    published.readings[name](finder)
            specs = [r.spec for r in finder.read.values()]
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
        one, other = run_all(specs, tmp_path, slots=1, device="cpu")
        assert (one.last.loss, one.last.correct) == (other.last.loss, other.last.correct)
        assert one.spec != other.spec

    @pytest.mark.parametrize(
        ("id", "setting", "field", "taps"),
        [
            ("cos-block-fa-0", "none", "cos", [1]),
            ("cos-block-fa-0", "published", "cos_input", [1]),
            ("cos-block-fa-3", "published", "cos_input", [4]),
            ("cos-dfa-0", "none", "cos", [0]),
            ("cos-wide-dfa-3", "none", "cos", [3]),
            ("cos-wide-dfa-3", "published", "cos_input", [4]),
            ("cos-strong", "none", "cos", [2, 3, 4]),
            ("cos-strong", "published", "cos_input", [3, 4]),
            ("rho-strong", "published", "rho", [3, 4]),
            ("gamma-dfa", "published", "cos_input", [1, 2, 3, 4]),
        ],
    )
    def test_where_cosines_are_read(self, id, setting, field, taps):
        values = (0.1, 0.2, 0.4, 0.8, 0.16)
        records = [
            replace(r, snapshots=(replace(r.last, taps=replace(r.last.taps, **{field: values})),)) for r in everything()
        ]
        found = set(np.round(entry(id).readings[setting](RunFinder(records)).numbers, 9))
        assert found == {np.round(np.mean([values[tap] for tap in taps]), 9)}

    def test_the_studies_hold_a_run_for_every_number_on_graphs(self):
        runs = [*graph_depth("paper", tasks=("cora",), seeds=(42,)).runs, *STUDIES.get("reproduction")("paper").runs]
        finder = RunFinder([run_of(w) for w in runs if w["net"] == "gcn" and w["seed"] == 42])
        for published in PUBLISHED:
            if published.id in ON_GRAPHS:
                for reading in (published.reading, *(reading for _, reading in published.alternatives)):
                    assert list(reading(finder).by_seed) == [42], published.id

    def test_only_the_published_scale_needs_a_graph_from_disk(self):
        tasks = {scale: {w["task"] for w in STUDIES.get("reproduction")(scale).runs} for scale in REPRODUCTION}
        embedded = {"mnist1d", "teacher"}
        assert tasks == {"demo": embedded, "paper": {"cifar10", "teacher", "cora"}, "test": embedded}

    def test_no_condition_is_read_twice_under_two_names(self):
        """The accuracies are told apart by condition, so equal means would be one run taken for another."""
        finder, alike = RunFinder(everything()), {}
        for published in PUBLISHED:
            if published.accuracy and published.id not in ON_GRAPHS and published.id != "gain-bp":
                for label, reading in (("", published.reading), *published.alternatives):
                    if values := reading(finder).numbers:
                        assert np.ptp(values) < 0.001, (published.id, label)
                        alike.setdefault(round(float(np.mean(values)), 5), set()).add((published.id, label))
        assert all(len({id for id, label in found if not label}) <= 1 for found in alike.values())


NUMBER = {"id": "x", "quantity": "accuracy", "said": "0.3", "condition": "dfa", "read": "accuracy"}
CLAIM = {"text": "x", "condition": "dfa", "check": "control 0.9"}
MAKERS = {
    "Number": lambda changed: make_number({k: v for k, v in (NUMBER | changed).items() if v is not None}, "part"),
    "Condition": lambda changed: make_condition("x", changed),
    "Claim": lambda changed: ask(CLAIM | changed, RunFinder([])),
}


class TestFile:
    @pytest.mark.parametrize(
        ("kind", "changed", "named"),
        [
            ("Number", {"read": "nope"}, ("a reader", "'nope'", "at_tap")),
            ("Number", {"read": "at_tap cosine 1"}, ("a measure", "'cosine'", "cos_input")),
            ("Number", {"read": "at_tap cos"}, ("arguments", "tap", "Mend")),
            ("Number", {"at_input": "nope"}, ("a reader", "'nope'")),
            ("Number", {"condition": "nope"}, ("a condition", "'nope'", "dfa-wide")),
            ("Number", {"condition": ["dfa", "bp"]}, ("as many conditions", "Mend")),
            ("Number", {"read": "gain"}, ("as many conditions", "Mend")),
            ("Number", {"alternatives": [{"label": "other", "condition": "nope"}]}, ("a condition", "'nope'")),
            ("Number", {"alternatives": [{"condition": "bp"}]}, ("label", "Add")),
            ("Number", {"said": 0.3}, ("digits as text", "0.3", "as printed")),
            ("Number", {"said": "O.3"}, ("digits as text", "'O.3'")),
            ("Number", {"sd": 0.25}, ("digits as text", "0.25")),
            ("Number", {"kind": "seed"}, ("a kind", "'seed'", "seeds")),
            ("Number", {"scale": "log"}, ("a scale", "'log'", "log10")),
            ("Number", {"quantity": None}, ("no quantity", "Add")),
            ("Number", {"seeds": 3}, ("a key", "'seeds'", "alternatives")),
            ("Condition", {"from": "nope"}, ("a condition", "'nope'", "student")),
            ("Condition", {"from": "bp", "rul": "dfa"}, ("a key", "'rul'", "rule")),
            ("Condition", {"rule": "dfa"}, ("no from", "Add")),
            ("Claim", {"check": "nope"}, ("a check", "'nope'", "crosses_floor")),
            ("Claim", {"check": "control"}, ("arguments", "least", "Mend")),
            ("Claim", {"condition": "nope"}, ("a condition", "'nope'")),
        ],
    )
    def test_what_is_wrong_is_named_with_what_was_expected(self, kind, changed, named):
        with pytest.raises(
            CreditscopeError, match=rf"^{kind} 'x' of published\.toml .*: Expected .*, but got "
        ) as caught:
            MAKERS[kind](changed)
        assert all(name in str(caught.value) for name in named), caught.value

    def test_what_is_right_is_taken(self):
        assert (MAKERS["Number"]({}).said, MAKERS["Claim"]({}).holds) == (("0.3",), None)

    def test_every_condition_is_read(self):
        """Or changed by one that is, or read by an artefact."""
        text = str({key: part for key, part in DATA.items() if key != "conditions"})
        text += str([changed["from"] for changed in DATA["conditions"].values()])
        assert [name for name in DATA["conditions"] if f"'{name}'" not in text] == ["gcn-10-no-decay"]


def under(id: str = "a", **values: Values | dict[int, float]) -> NumberUnderAll:
    """An accuracy of DFA, published as 0.306, with values by setting and seed."""
    found = {name: own if isinstance(own, Values) else Values(own) for name, own in values.items()}
    readings = {name: lambda _, own=own: own for name, own in found.items()}
    published = replace(entry("acc-dfa"), id=id, readings=readings, alternatives=(), sd="")
    return compare_settings(published, RunFinder([]))


class TestJoint:
    NEAR, OFF = {1: 0.305, 2: 0.306, 3: 0.307}, {1: 0.505, 2: 0.506, 3: 0.507}

    def test_all_settings_are_compared_on_the_seeds_that_they_share(self):
        """On 20 seeds ours would be outside; on the three that the other has it is as wide, and inside."""
        many = {seed: 0.34 + 0.02 * (seed % 3 - 1) for seed in range(20)}
        found = under(none=many, sample={seed: 0.30 + 0.01 * seed for seed in (0, 1, 2, 30)})
        assert (found.seeds, found.answers) == ({0, 1, 2}, {"none": True, "sample": True})
        assert [found.under[name].n for name in ("none", "batch", "sample")] == [3, 0, 3]
        assert compare(entry("acc-dfa"), Values(many)).inside is False

    def test_a_seed_that_never_fires_is_shared_and_counts(self):
        found = under(none={1: 0.3, 2: 0.31}, batch=Values({1: 0.3}, {2: NEVER}))
        assert (found.seeds, found.under["none"].n, found.under["batch"].inside) == ({1, 2}, 2, None)

    def test_a_seed_without_a_number_under_one_setting_is_compared_under_none(self):
        """Else the setting that lacks it would be the only one with the wider interval."""
        many = {1: 0.30, 2: 0.31, 3: 0.32, 4: 0.33}
        few = Values({1: 0.30, 2: 0.31}, {3: "diverged", 4: "not measured", 5: "diverged"})
        found = under(none=many, batch=few, sample=Values({}, dict.fromkeys(many, "diverged")))
        assert found.seeds == {1, 2}
        each = [found.under[name] for name in ("none", "batch", "sample")]
        assert [one.n for one in each] == [2, 2, 0]
        assert [one.values.words() for one in each] == ["", "1 diverged, 1 not measured", "4 diverged"]
        assert numbers(say_ours(found, RunFinder([])).partition("n = ")[2])[0] == 4

    def test_other_conditions_with_fewer_seeds_are_beside_ours_on_these(self):
        """On two seeds ours is inside, too, so that the other condition is no reason."""
        ours, two = {1: 0.38, 2: 0.40, 3: 0.39, 4: 0.385}, {1: 0.30, 2: 0.31}

        def others(found: Values) -> str:
            one = under(none=ours)
            asked = replace(one.published, alternatives=(("longer", lambda _: found),))
            return say_others(replace(one, published=asked), RunFinder([]))

        for lacking in ({}, {3: "diverged"}):
            other, _, again = others(Values(two, lacking)).partition("; ours on these ")
            assert (other.split(" ± ")[0], again.split(" ± ")[0]) == ("longer: 0.3050", "0.3900")
            assert ("(1 diverged)" in other) == bool(lacking)
            assert ["n = 2, inside" in text for text in (other, again)] == [True, True]
        assert re.fullmatch(r"longer: 0\.3050 ± \S+, n = 4, inside", others(Values(two | {3: 0.30, 4: 0.31, 9: 0.9})))
        assert others(Values({8: 0.3, 9: 0.31})) == ""

    def test_what_each_setting_gives_jointly(self):
        near, off = self.NEAR, self.OFF
        found = [under("a", none=near, sample=near), under("b", none=off, sample=near)]
        found += [under("c", none=off, sample=off), under("d", none=near), under("e")]
        found.append(replace(found[1], published=replace(found[1].published, apart="another recipe")))
        tallies = tally(found)
        assert (len(tallies.numbers), tallies.shared) == (5, 3)
        by_setting = {t.setting.name: (t.inside, t.answered, t.joint) for t in tallies.by_setting}
        assert by_setting == {"none": (2, 4, 1), "sample": (2, 3, 2)}
        assert [one.setting.name for one in tallies.best] == ["sample"]
        assert ([p.id for p in tallies.nowhere], [p.id for p in tallies.silent]) == (["c"], ["e"])
        lines = tallies.lines()
        assert numbers(lines[0])[:2] == [5, len(PUBLISHED)]
        assert [numbers(line) for line in lines if line.startswith("sample")] == [[2, 3, 2, 3]]

    def test_an_accuracy_inside_a_wide_interval_alone_is_far(self):
        found = tally([under(none={1: 0.25, 2: 0.40, 3: 0.42}, sample=self.NEAR)])
        assert [(one.inside, one.far) for one in found.by_setting] == [(1, 1), (1, 0)]

    def test_without_runs_nothing_is_said_and_gcns_of_another_recipe_are_apart(self):
        found = tally([compare_settings(p, RunFinder([])) for p in PUBLISHED])
        assert (found.by_setting, found.best, found.shared) == ((), [], 0)
        assert len(found.silent) == len(found.numbers) == len(PUBLISHED) - 4
        apart = {p.id for p in PUBLISHED if p.apart}
        assert apart == {f"gcn-{kind}{depth}" for kind in ("", "residual-") for depth in (32, 64)}
