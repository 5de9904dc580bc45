"""Study and figure of deep GCNs: what is drawn and stated is what the records hold, gaps and zeros too."""

import math
from dataclasses import replace

import numpy as np
import pytest
from bottleneck_runs import altered, depth_of, line, value
from drawn import head, words
from pages import assert_clear, texts

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import _depths
from creditscope.paper.figures.bp_bottleneck import describe, plot_bp_bottleneck
from creditscope.paper.studies import find_missing
from creditscope.paper.studies.bp_bottleneck import bp_bottleneck
from creditscope.record import load_records
from creditscope.registry import STUDIES

pytestmark = pytest.mark.slow
TINY = {"exact_norm": (1e-26, 2e-26, 3e-26), "exact_float32": (0.0,) * 3}
"""Norms that float32 takes for 0, of three layers."""
GONE = {"exact_norm": (0.0,) * 5, "exact_float32": (0.0,) * 5, "exact_all_zero": (1,) * 5}
"""Gradients of five layers of which every element is 0."""


@pytest.fixture(scope="module")
def records(bottleneck):
    return load_records(bottleneck)


@pytest.fixture
def zeros(records):
    return altered(altered(records, 3, weights=lambda w: TINY), 5, weights=lambda w: GONE)


def test_the_study_is_sixty_runs_of_cora_and_takes_no_variant_for_one(records):
    runs = bp_bottleneck("paper").runs
    assert (len(runs), {run["task"] for run in runs}) == (60, {"cora"})
    assert {run["net_options"]["depth"] for run in runs} == {6, 10, 20}
    assert STUDIES.get("forward_magnitude")("paper").runs == runs
    assert find_missing(bp_bottleneck("test"), records) == []
    spec = records[0].spec
    for change in ({"net_options": {**spec.net_options, "residual": True}}, {"decay_on": "first"}):
        odd = replace(records[0], spec=replace(spec, **change))
        assert len(find_missing(bp_bottleneck("test"), [odd, *records[1:]])) == 1


def test_lines_are_medians_and_bands_quartiles_over_seeds(records):
    fig = plot_bp_bottleneck(records)
    for ax, read in zip(
        fig.axes[:2], (lambda r: r.last.weights.exact_norm, lambda r: r.last.layers.probe), strict=True
    ):
        values = np.array([read(r) for r in records if depth_of(r) == 3], dtype=float)
        np.testing.assert_allclose(line(ax, "L = 3"), np.median(values, axis=0))
        band = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert set(np.quantile(values, [0.25, 0.75], axis=0).ravel()) <= set(band)
    assert line(fig.axes[1], "chance")[0] == 0.25
    assert not [own for own in fig.axes[0].lines if own.get_gid().endswith("float32")]
    assert_clear(fig)


def test_zeros_lie_at_the_foot_and_float32_norms_where_they_differ(records, zeros):
    fig = plot_bp_bottleneck(zeros)
    ax, caption = fig.axes[0], describe(zeros)
    np.testing.assert_allclose(line(ax, "L = 3"), TINY["exact_norm"])
    assert set(line(ax, "L = 3 float32")) == set(line(ax, "L = 5")) == set(line(ax, "zero"))
    for depth, said in ((3, ("6 of 6", "0 of 6")), (5, ("10 of 10", "10 of 10"))):
        for how, text in zip(("a float32 norm of 0", "every element 0"), said, strict=True):
            assert value(caption, f"weight gradients with {how}", f"L = {depth}") == text
    assert value(caption, "largest median gradient of a weight", "L = 3") == pytest.approx(3e-26)
    assert_clear(fig)
    halved = altered(records, 3, weights=lambda w: {"exact_float32": (w.exact_norm[0], w.exact_norm[1] / 2, None)})
    np.testing.assert_array_equal(
        np.isnan(line(plot_bp_bottleneck(halved).axes[0], "L = 3 float32")), [True, False, True]
    )


def test_statements_are_the_numbers_of_the_records(records):
    own, caption = [r for r in records if depth_of(r) == 3], describe(records)
    accuracy, first = [r.last.accuracy for r in own], [r.snapshots[0] for r in own]
    assert value(caption, "accuracy", "L = 3").mean == pytest.approx(np.mean(accuracy))
    for quantity, expected in {
        "accuracy, sd over seeds": np.std(accuracy, ddof=1),
        "probe accuracy between input and output": np.median([r.last.layers.probe[1:-1] for r in own]),
        "the same before training": np.median([s.layers.probe[1:-1] for s in first]),
        "output error": np.median([r.last.layers.z_grad[-1] for r in own]),
        "decay over gradient": np.median([5e-4 * np.divide(s.weights.w_norm, s.weights.exact_norm) for s in first]),
    }.items():
        assert value(caption, quantity, "L = 3") == pytest.approx(expected), quantity
    uniform = math.sqrt(3 / 4 / 80)
    assert value(caption, "output error", "equal probabilities") == pytest.approx(uniform)
    alike = describe(altered(records, 5, layers=lambda m: {"z_grad": (*m.z_grad[:-1], uniform)}))
    assert {s.group: bool(s.verdict) for s in alike.statements if s.quantity == "output error"}["L = 5"]
    for change in ({"decay_on": "first"}, {"weight_decay": 0.0}):  # of three layers two do not decay, or none
        found = describe([replace(r, spec=replace(r.spec, **change)) for r in own])
        assert value(found, "decay over gradient", "L = 3") == 0


def test_what_is_not_measured_is_a_gap_and_not_zero(records, monkeypatch):
    monkeypatch.setattr(_depths, "DEPTHS", (3, 5))
    constant = altered(records, 3, layers=lambda m: {"probe": (0.31, 0.62, None, None)})
    np.testing.assert_array_equal(line(plot_bp_bottleneck(constant).axes[1], "L = 3"), [0.31, 0.62, np.nan, np.nan])
    assert value(describe(constant), "constant states", "L = 3") == "4 of 8"
    unknown = describe(altered(records, 5, weights=lambda w: dict.fromkeys(TINY, (None,) * 5)))
    assert value(unknown, "weight gradients with a float32 norm of 0", "L = 5") == "0 of 0"
    assert value(unknown, "smallest median gradient of a weight", "L = 5") is None
    older = altered(records, 5, weights=lambda w: {"exact_float32": ()})
    assert describe(older).gaps == ("L = 5: not on record",)
    fig = plot_bp_bottleneck(older)
    assert "L = 5: not on record" in texts(fig)
    assert_clear(fig)
    lost = [replace(r, provenance=replace(r.provenance, status="diverged", diverged_epoch=1)) for r in records[:1]]
    assert [gap for gap in describe([*lost, *records[1:]]).gaps if "diverged in epoch 1" in gap]


def test_other_records_are_refused(records):
    with pytest.raises(CreditscopeError, match="layer by layer"):
        plot_bp_bottleneck([replace(r, snapshots=(replace(r.last, layers=None),)) for r in records])
    with pytest.raises(CreditscopeError, match="lr"):
        plot_bp_bottleneck([*records[:-1], replace(records[-1], spec=replace(records[-1].spec, lr=0.1))])


def test_titles_and_the_table_follow_the_data(records, zeros):
    plain, gone = plot_bp_bottleneck(records), plot_bp_bottleneck(zeros)
    assert head(gone.axes[0]) == ("A", "L = 3, 5: every norm is 0 in float32")
    assert "float32" not in head(plain.axes[0])[1]
    cells = words(gone.axes[2])
    assert {"6/6", "0/6", "10/10"} <= set(cells)
    own = [r.last.accuracy for r in records if depth_of(r) == 3]
    assert f"{100 * np.mean(own):.0f} ± {100 * np.std(own, ddof=1):.0f}" in cells
