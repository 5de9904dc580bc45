"""Figure `phase`: gains and counts are what NumPy and SciPy make of the records, and titles are true of them."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from drawn import head, words
from scipy import stats

from creditscope.auditing import audit
from creditscope.paper.figures.phase import LEAST, describe, find_phases, plot_phase
from creditscope.paper.published.explained import count_inside, explain, numbers_of
from creditscope.paper.studies import find_wanted, resolve_study
from creditscope.paper.studies._recipes import SEEDS
from creditscope.record import Record

pytestmark = pytest.mark.slow
NORMS = ("none", "batch", "sample")
PENALTIES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)


@pytest.fixture(scope="module")
def records(league_records) -> list[Record]:
    return find_wanted(resolve_study("phase", "league"), league_records)


@pytest.fixture(scope="module")
def few(records) -> list[Record]:
    """On the seeds that the published runs have."""
    return [r for r in records if r.spec.seed in SEEDS]


def runs(records, *, rule="dfa", norm="none", penalty=0.0, frozen=False, terminal=True) -> dict[int, Record]:
    wanted = {"rule": rule, "credit_norm": norm, "penalty": penalty, "frozen": frozen}
    found = [r for r in records if all(getattr(r.spec, name) == value for name, value in wanted.items())]
    return {r.spec.seed: r for r in found if r.spec.net_options["terminal_norm"] == terminal}


def accuracies(found: dict[int, Record]) -> np.ndarray:
    return np.array([found[seed].last.accuracy for seed in sorted(found)])


class TestStudy:
    def test_at_full_scale_it_is_two_blocks_and_on_embedded_data_one_optimiser(self):
        full, demo = resolve_study("phase", "league").runs, resolve_study("phase", "demo").runs
        dfa = [r for r in full if r["rule"] == "dfa" and not r.get("frozen")]
        cells = {(r.get("credit_norm", "none"), r["penalty"], r["net_options"]["terminal_norm"]) for r in dfa}
        assert cells == set(product(NORMS, PENALTIES, (True, False)))
        assert len(dfa) == 5 * len(cells)
        assert {r["optimiser"] for r in demo} == {"adamw"}
        assert {r["penalty"] for r in demo if r["rule"] == "dfa" and not r.get("frozen")} == {p for _, p, _ in cells}


class TestFigure:
    def test_cells_are_gains_over_the_better_frozen_baseline(self, records):
        axes = plot_phase(records).axes
        for ax, terminal in zip(axes, (True, False), strict=False):
            for norm, penalty in product(NORMS, PENALTIES):
                own = accuracies(runs(records, norm=norm, penalty=penalty, terminal=terminal))
                twins = [
                    accuracies(runs(records, norm=norm, frozen=True, terminal=terminal)),
                    accuracies(runs(records, rule="bp", frozen=True, terminal=terminal)),
                ]
                better = max(twins, key=np.mean)
                (said,) = [text.get_text() for text in ax.texts if text.get_gid() == f"{norm} {penalty:g}"]
                assert float(said.replace("−", "-")) == pytest.approx(100 * (own - better).mean(), abs=0.05)

    @pytest.mark.parametrize("own", ["records", "few"])
    def test_a_cell_is_tinted_as_cs004_answers(self, own, request):
        """By one-sided bounds: on three seeds a two-sided interval would leave open what is answered per sample at
        λ = 1e-4."""
        records = request.getfixturevalue(own)
        judged, answers = audit(records), {"more": "passed", "less": "issue", "open": "undecided"}
        (with_norm, without) = find_phases(records)[1]
        asked = 0
        for method, found in zip(judged.groups, judged.methods, strict=True):
            spec, (cs004,) = method.spec, [f for f in found.findings if f.code == "CS004"]
            if spec.rule == "dfa":
                phases = with_norm if spec.net_options["terminal_norm"] else without
                assert answers[phases.answer(spec.credit_norm, spec.penalty)] == cs004.outcome
                asked += 1
        assert asked == 30
        assert with_norm.answer("sample", 1e-4) == "less"
        assert (with_norm.gain("sample", 1e-4).high > LEAST) == (own == "few")

    def test_a_cell_that_is_not_on_record_is_open_and_says_nothing(self, records):
        lost = runs(records, penalty=1e-4, terminal=False).values()
        rest = [r for r in records if r not in lost]
        assert len(records) - len(rest) == 5
        assert find_phases(rest)[1][1].answer("none", 1e-4) == "open"
        (said,) = [s for s in describe(rest).statements if s.group == "none, λ = 10⁻⁴" and "no" in s.panel]
        assert (said.value, said.verdict) == (None, "")

    def test_its_title_names_the_best_cell_or_that_none_is_shown_to_gain(self, records):
        _, phases = find_phases(records)
        gains = {cell: phases[0].gain(*cell) for cell in phases[0].cells}
        best = max((own.mean, cell) for cell, own in gains.items() if own)[1]
        assert best == ("batch", 1e-4)
        assert "10⁻⁴, per batch" in head(plot_phase(records).axes[0])[1]
        one = [r for r in records if r.spec.seed == 42]
        assert "no cell" in head(plot_phase(one).axes[0])[1]

    def test_another_net_than_the_published_one_explains_nothing(self, records):
        narrow = [replace(r, spec=replace(r.spec, net_options={**r.spec.net_options, "width": 64})) for r in records]
        assert not any(own.explained for own in find_phases(narrow)[1])
        assert not any(s.quantity.startswith("published") for s in describe(narrow).statements)
        assert not any(" of " in text for ax in plot_phase(narrow).axes for text in words(ax))


class TestExplained:
    def test_numbers_are_those_of_the_same_penalty_and_net(self):
        plain = {one.id for one in numbers_of(0.0, terminal_norm=True)}
        assert {"acc-dfa", "brief-acc-dfa", "cos-dfa-1", "h-dfa"} <= plain
        assert not {"cos-wide-dfa-0", "acc-frozen", "acc-random", "growth-dfa", "cos-early", "acc-bare-dfa"} & plain
        assert {one.id for one in numbers_of(0.0, terminal_norm=False)} == {"acc-bare-dfa", "h-bare-dfa", "g-bare-dfa"}
        assert {one.id for one in numbers_of(1e-4, terminal_norm=True)} == {"cos-weak", "rho-weak"}
        assert not numbers_of(1e-3, terminal_norm=True)

    def test_inside_is_the_prediction_interval_of_scipy(self, few):
        """A cosine that is said with a number of seeds, but without their spread."""
        cells = {norm: list(runs(few, norm=norm, penalty=0.01).values()) for norm in NORMS}
        found = explain(cells, 0.01, terminal_norm=True)
        said = {"cos-strong-dfa-0": (0, 0.316), "cos-strong-dfa-1": (1, 0.169), "cos-strong-dfa-4": (4, 0.166)}
        for norm, records_of in cells.items():
            by_id = {number.id: own for number, own in found[norm]}
            for name, (tap, published) in said.items():
                values = np.array([r.last.taps.cos[tap] for r in records_of])
                reach = stats.t.ppf(0.975, 2) * values.std(ddof=1) * np.sqrt(1 / 3 + 1 / 3)
                inside = abs(values.mean() - published) <= reach + 0.0005
                assert by_id[name].inside == inside
                assert by_id[name].n == 3

    def test_fewer_seeds_explain_no_more(self, few):
        """Two seeds have an interval six times as wide: all are then held against numbers on these two."""
        cells = {norm: list(runs(few, norm=norm, penalty=0.01).values()) for norm in NORMS}
        fewer = explain({**cells, "none": cells["none"][:2]}, 0.01, terminal_norm=True)
        assert {own.n for both in fewer.values() for _, own in both} == {2}
        cut = explain({norm: own[:2] for norm, own in cells.items()}, 0.01, terminal_norm=True)
        assert [*map(count_inside, fewer.values())] == [*map(count_inside, cut.values())]
        one = explain({**cells, "none": cells["none"][:1]}, 0.01, terminal_norm=True)
        assert {count_inside(own) for own in one.values()} == {(0, 0)}
