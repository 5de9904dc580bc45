"""Study and figure of deep GCNs: what is drawn is what the records hold, gaps and zeros too."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from bottleneck_runs import altered, depth_of, gone, has_line, line, panel, tiny
from pages import assert_clear, texts

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import _bottleneck_captions, _depths, describe_figure, save_figure
from creditscope.paper.figures._bottleneck_captions import uniform_error
from creditscope.paper.figures._bottleneck_table import HEADINGS, table_rows
from creditscope.paper.figures._depths import select_depths
from creditscope.paper.figures._measures import decay_ratio
from creditscope.paper.figures.bp_bottleneck import plot_bp_bottleneck
from creditscope.paper.figures.forward_magnitude import plot_forward_magnitude
from creditscope.paper.studies import find_missing
from creditscope.paper.studies.bp_bottleneck import bp_bottleneck
from creditscope.record import LayerMeasures, Record, WeightMeasures, load_records
from creditscope.registry import STUDIES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def records(bottleneck) -> list[Record]:
    return load_records(bottleneck)


def only_first(weights: WeightMeasures) -> WeightMeasures:
    """As if the others had not been measured."""
    none = (None,) * (len(weights.w_norm) - 1)
    return replace(weights, w_norm=(weights.w_norm[0], *none))


class TestStudy:
    def test_the_paper_is_sixty_runs_of_cora(self):
        runs = bp_bottleneck("paper").runs
        assert len(runs) == 60
        assert {run["net_options"]["depth"] for run in runs} == {6, 10, 20}
        assert len({run["seed"] for run in runs}) == 20
        assert {(run["task"], run["epochs"], run["optimiser"], run["lr"], run["weight_decay"]) for run in runs} == {
            ("cora", 100, "adam", 0.01, 5e-4)
        }
        assert STUDIES.get("forward_magnitude")("paper").runs == runs

    def test_a_variant_of_the_net_does_not_stand_in_for_it(self, records):
        study = bp_bottleneck("test")
        assert find_missing(study, records) == []
        spec = records[0].spec
        variant = replace(records[0], spec=replace(spec, net_options={**spec.net_options, "residual": True}))
        assert len(find_missing(study, [variant, *records[1:]])) == 1
        decay = replace(records[0], spec=replace(spec, decay_on="first"))
        assert len(find_missing(study, [decay, *records[1:]])) == 1

    def test_untrained_and_trained_nets_are_measured(self, records):
        assert [s.epoch for s in records[0].snapshots] == [0, 2]
        assert all(s.layers.probe for s in records[0].snapshots)


class TestFigure:
    def test_gradients_are_medians_and_quartiles_over_seeds(self, records):
        ax = panel(plot_bp_bottleneck(records), "A")
        for depth in (3, 5):
            norms = np.array([r.last.weights.exact_norm for r in records if depth_of(r) == depth])
            np.testing.assert_allclose(line(ax, f"L = {depth}"), np.median(norms, axis=0))
            assert not has_line(ax, f"L = {depth} float32")
        band = ax.collections[0].get_paths()[0].vertices[:, 1]
        norms = np.array([r.last.weights.exact_norm for r in records if depth_of(r) == 3])
        assert set(np.quantile(norms, [0.25, 0.75], axis=0).ravel()) <= set(band)

    def test_float32_norms_are_drawn_where_they_differ_and_zeros_at_floors(self, records):
        fig = plot_bp_bottleneck(altered(altered(records, 3, weights=tiny), 5, weights=gone))
        ax, said = panel(fig, "A"), texts(fig)
        np.testing.assert_allclose(line(ax, "L = 3"), [1e-26, 2e-26, 3e-26])
        plain, zeros = line(ax, "L = 3 float32"), line(ax, "L = 5")
        assert len(set(plain)) == len(set(zeros)) == 1
        assert ax.get_ylim()[0] < zeros[0] < plain[0] < 1e-26
        assert not has_line(ax, "L = 5 float32")
        assert line(ax, "every element is 0 (drawn here)")[0] == zeros[0]
        assert line(ax, "float32 norm is 0, elements are not (drawn here)")[0] == plain[0]
        assert "Zero weight gradients: 10 of 16, by float32 norm 16" in said
        assert (
            "L = 3: medians from 10⁻²⁶ to 3×10⁻²⁶; all 6 underflow as float32 norms, though none is all zero." in said
        )
        assert "L = 5: every element of every weight gradient is exactly 0." in said

    def test_one_layer_that_differs_is_drawn_alone(self, records):
        half = altered(
            records, 5, weights=lambda w: {"exact_float32": (*w.exact_norm[:2], w.exact_norm[2] / 2, *w.exact_norm[3:])}
        )
        ax = panel(plot_bp_bottleneck(half), "A")
        drawn = line(ax, "L = 5 float32")
        assert np.isnan(drawn).tolist() == [True, True, False, True, True]
        assert drawn[2] == pytest.approx(line(ax, "L = 5")[2] / 2)

    def test_probes_leave_gaps_where_states_are_constant(self, records):
        values = (0.31, 0.62, None, None)
        fig = plot_bp_bottleneck(altered(records, 3, layers=lambda m: {"probe": values}))
        drawn = line(panel(fig, "B"), "L = 3")
        np.testing.assert_allclose(drawn[:2], [0.31, 0.62])
        assert np.isnan(drawn[2:]).all()
        assert line(panel(fig, "B"), "chance")[0] == 0.25
        assert "Constant states, which have no probe: 4 at L = 3." in texts(fig)

    def test_the_table_holds_the_altered_numbers(self, records):
        changed = altered(
            records,
            5,
            accuracy=0.4321,
            layers=lambda m: {"z_grad": (*m.z_grad[:-1], 0.0123), "probe": (0.1, *[0.777] * 4, 0.2)},
        )
        fig = plot_bp_bottleneck(changed)
        said, printed = texts(fig), describe_figure(plot_bp_bottleneck, changed)
        for cell in ("43.2 ± 0", "0/10", "1.2×10⁻²", "0.78"):
            assert cell in said
            assert cell in printed.splitlines()[2]
        assert all(heading.replace("\n", ", ") in printed for heading in HEADINGS)
        three = [r for r in records if depth_of(r) == 3]
        row = table_rows(select_depths(changed))[0]
        accuracy = [r.last.accuracy for r in three]
        assert (row.accuracy, row.spread) == pytest.approx((np.mean(accuracy), np.std(accuracy, ddof=1)))
        assert row.probe == pytest.approx(np.median([r.last.layers.probe[1:-1] for r in three]))
        assert row.output_error == pytest.approx(np.median([r.last.layers.z_grad[-1] for r in three]))
        assert (row.zero_norms, row.all_zero) == ((0, 6), (0, 6))

    def test_captions_know_uniform_answers_and_the_decay(self, records):
        found = select_depths(records)
        assert uniform_error(found) == pytest.approx(math.sqrt(3 / 4) / math.sqrt(80))
        uniform = altered(records, 5, layers=lambda m: {"z_grad": (*m.z_grad[:-1], uniform_error(found))})
        said = texts(plot_bp_bottleneck(uniform))
        assert "√(3/4)/√80 = 0.0968: L = 5 is there." in said
        first = [r.snapshots[0].weights for r in records if depth_of(r) == 3]
        ratio = np.median([5e-4 * np.array(w.w_norm) / np.array(w.exact_norm) for w in first])
        assert f"ratio of decay term to loss gradient is {ratio:.2g} at L = 3" in said
        without = [replace(r, spec=replace(r.spec, weight_decay=0.0)) for r in records]
        assert "No weight decays." in texts(plot_bp_bottleneck(without))

    def test_the_decay_of_the_first_layer_alone_is_that_of_the_first_layer(self, records):
        first = [replace(r, spec=replace(r.spec, decay_on="first")) for r in records if depth_of(r) == 3]
        weights = [r.snapshots[0].weights for r in first]
        ratios = [5e-4 * w.w_norm[0] / w.exact_norm[0] for w in weights]
        assert decay_ratio(first) == 0.0  # of three layers two do not decay
        assert "ratio of decay term to loss gradient is 0 at L = 3" in texts(plot_bp_bottleneck(first))
        one = [
            replace(r, snapshots=(replace(r.snapshots[0], weights=only_first(w)), r.last))
            for r, w in zip(first, weights, strict=True)
        ]
        assert decay_ratio(one) == pytest.approx(np.median(ratios))

    def test_gradients_that_are_not_measured_are_not_zero(self, records, monkeypatch):
        unknown = altered(records, 5, weights=lambda w: {"exact_norm": (None,) * 5, "exact_float32": (None,) * 5})
        said = texts(plot_bp_bottleneck(unknown))
        assert "every element of every weight gradient is exactly 0" not in said
        assert "L = 5: norms not measured" in said
        assert "Zero weight gradients: 0 of 16," in said
        older = altered(records, 5, weights=lambda w: {"exact_float32": ()})
        monkeypatch.setattr(_depths, "DEPTHS", (3, 5))
        assert "L = 5: not on record" in texts(plot_bp_bottleneck(older))

    def test_missing_runs_are_marked(self, records, monkeypatch):
        few = [r for r in records if depth_of(r) == 3 or r.spec.seed == 1]
        assert "L = 5: seed 2 not on record." in texts(plot_bp_bottleneck(few))
        monkeypatch.setattr(_depths, "DEPTHS", (3, 5))
        fig = plot_bp_bottleneck([r for r in records if depth_of(r) == 3])
        assert "L = 5: not on record" in texts(fig)
        assert texts(fig).count("not on record") >= 6
        assert_clear(fig)
        lost = [
            replace(r, provenance=replace(r.provenance, status="diverged")) if r.spec.seed == 1 else r for r in records
        ]
        assert "L = 3, seed 1: diverged, left out." in texts(plot_bp_bottleneck(lost))
        assert "One seed, so no band" in texts(plot_bp_bottleneck(lost))

    def test_the_depths_of_the_study_are_expected(self, records):
        six = [
            replace(r, spec=replace(r.spec, net_options={**r.spec.net_options, "depth": 6}))
            for r in records
            if depth_of(r) == 5
        ]
        assert "L = 20: no run." in texts(plot_bp_bottleneck(six))

    def test_other_records_are_refused(self, records):
        with pytest.raises(CreditscopeError, match="Expected records that were measured layer by layer"):
            plot_bp_bottleneck([replace(r, snapshots=(replace(r.last, layers=None),)) for r in records])
        mixed = [*records[:-1], replace(records[-1], spec=replace(records[-1].spec, lr=0.1))]
        with pytest.raises(CreditscopeError, match=r"Expected records of one setting, but they differ in lr"):
            plot_bp_bottleneck(mixed)

    def test_a_small_spread_is_not_written_as_none(self, records):
        near = {1: 0.4320, 2: 0.4324}
        changed = [altered([r], 5, accuracy=near[r.spec.seed])[0] for r in records]
        assert "43.22 ± 0.03" in texts(plot_bp_bottleneck(changed))

    @pytest.mark.parametrize("count", [720, 7_200, 72_000])
    def test_titles_keep_apart_however_long_their_numbers(self, records, count, monkeypatch):
        rows = [
            replace(row, all_zero=(count, count), zero_norms=(count, count))
            for row in table_rows(select_depths(records))
        ]
        monkeypatch.setattr(_bottleneck_captions, "table_rows", lambda found: rows)
        fig = plot_bp_bottleneck(records)
        fig.draw_without_rendering()
        assert f"{2 * count} of {2 * count}, by float32 norm {2 * count}" in texts(fig)
        first, second = (next(t for t in fig.texts if t.get_text().startswith(f"{letter}   ")) for letter in "AB")
        gap = second.get_window_extent().x0 - first.get_window_extent().x1
        assert gap / fig.dpi > 0.3  # inches
        assert first.get_size() > 5.5

    @pytest.mark.parametrize("plot", [plot_bp_bottleneck, plot_forward_magnitude])
    def test_pages_are_clear_and_saved_alike(self, records, plot, tmp_path):
        assert_clear(plot(records))
        zeros = altered(altered(records, 3, weights=tiny), 5, weights=gone)
        assert_clear(plot(zeros))
        first = [path.read_bytes() for path in save_figure(plot(zeros), tmp_path, "page")]
        assert [path.read_bytes() for path in save_figure(plot(zeros), tmp_path, "page")] == first
        assert b"/FontFile2" in first[1]  # Type 42


def test_measures_survive_the_disk(records):
    for record in records:
        assert isinstance(record.last.layers, LayerMeasures)
        assert len(asdict(record.last.layers)["probe"]) == depth_of(record) + 1
