"""What is drawn: colours, heatmaps read back cell by cell, and charts."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot
from hypothesis import assume, given
from hypothesis import strategies as st
from reading import Page, over_epochs

from creditscope.auditing.methods import group_methods
from creditscope.report.colours import SIGNED, Scale, diverging, log_scale, sequential
from creditscope.report.curves import Curve, _curve, draw_chart, draw_curves, spread
from creditscope.report.history import choose_epochs, pick, trace_layers
from creditscope.report.layers import _size, draw_heatmap


def lightness(colour: str) -> float:
    """CIELAB L* of #rrggbb, by the textbook: another space than the one the maps are made in."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))
    return 116 * np.cbrt(luminance) - 16


class TestColours:
    def test_sizes_grow_darker_in_even_steps(self):
        steps = -np.diff([lightness(c) for c in sequential()])
        assert steps.min() > 0
        assert steps.max() < 2 * steps.mean()

    def test_what_is_told_less_is_darker_all_the_way(self):
        light = np.array([lightness(c) for c in diverging()])
        assert light[0] > 90
        assert np.diff(light).max() < 0

    def test_the_dangerous_end_is_the_dark_one(self):
        shades = {"d": diverging(), "s": sequential()}

        def shade(scale, value):
            name = scale.css(value)
            return lightness(shades[name[0]][int(name[1:])])

        small, large = Scale("log", -4, 4, falling=True), Scale("log", -4, 4)
        assert shade(SIGNED, 1.0) > shade(SIGNED, 0.2) > shade(SIGNED, 0.0) > shade(SIGNED, -0.5)
        assert shade(small, 1e-4) < shade(small, 1.0) < shade(small, 1e4)
        assert shade(large, 1e-4) > shade(large, 1.0) > shade(large, 1e4)
        assert [label for _, label in small.ticks()] == [label for _, label in large.ticks()][::-1]


def read_cells(svg: str, rows: int, columns: int) -> list[list[str | None]]:
    """The class of each cell, tap by tap, from the strokes alone."""
    found: list[list[str | None]] = [[None] * columns for _ in range(rows)]
    group = re.findall(r"<g transform[^>]*>(.*?)</g>", svg)[0]
    for colour, path in re.findall(r'<path class="(\w+)"[^>]* d="([^"]*)"', group):
        for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)", path):
            for column in range(int(x), int(x) + int(width)):
                assert found[rows - 1 - int(y)][column] is None
                found[rows - 1 - int(y)][column] = colour
    return found


def history_of(values: dict, *, exact: tuple[int, ...] = ()):
    """A method whose quantity at (epoch, tap) is given."""
    taps = {name: lambda e, rows=rows: tuple(rows[e]) for name, rows in values.items()}
    records = over_epochs(range(len(next(iter(values.values())))), seeds=(1,), **taps)
    facts = make_facts(exact_taps=exact)
    (method,) = group_methods([replace(r, provenance=replace(r.provenance, facts=facts)) for r in records])
    return trace_layers(method, choose_epochs([method], 24))


class TestHeatmap:
    @given(st.lists(st.lists(st.one_of(st.none(), st.floats(-1, 1)), min_size=5, max_size=5), min_size=2, max_size=6))
    def test_each_cell_has_the_colour_of_its_value(self, values):
        assume(any(v is not None for row in values for v in row))
        svg = draw_heatmap(history_of({"cos": values}), "cos", SIGNED, key="m0", method="m")
        cells = read_cells(svg, 5, len(values))
        for epoch, row in enumerate(values):
            for tap, value in enumerate(row):
                expected = None if value is None else f"d{round(16 - 16 * np.sign(value) * abs(value) ** 0.5)}"
                assert cells[tap][epoch] == expected

    def test_sizes_go_by_their_logarithm_and_zero_is_no_gap(self):
        values = [[1e-4, 1e-2, 1.0, 0.0, None], [1e-4] * 5]
        history = history_of({"g_norm": values})
        scale = log_scale(history.means["g_norm"])
        svg = draw_heatmap(history, "g_norm", scale, key="m0", method="m")
        assert [row[0] for row in read_cells(svg, 5, 2)] == ["s0", "s16", "s31", "zero", None]
        assert 'class="gap"' in svg
        assert scale.has_zero
        assert scale.ticks()[0] == (0.0, "10⁻⁴")

    def test_cells_within_chance_are_dotted_and_exact_ones_never(self):
        rows = [[0.01, 0.097, 0.099, -0.05, 0.01], [-0.01, -0.097, -0.099, -0.9, -0.01]]
        history = history_of({"cos": rows, "null_sd": [[0.05] * 5] * 2}, exact=(4,))
        assert history.in_null.tolist() == [[True, True, False, True, False], [True, True, False, False, False]]
        svg = draw_heatmap(history, "cos", SIGNED, key="m0", method="m")
        assert svg.count("h0") == 5
        assert set(read_cells(svg, 5, 2)[4]) == {"exact"}

    def test_beside_a_cell_stand_fewest_rows_worst_noise_and_the_null_of_the_mean(self):
        records, given = (
            [],
            {"rows_used": (9, 4), "rows_no_gradient": (0, 5), "g_noise": (1e-7, 0.1), "null_sd": (3, 4)},
        )
        for seed in (0, 1):
            taps = {name: lambda _, value=values[seed]: (value,) * 5 for name, values in given.items()}
            records += over_epochs((0, 1), seeds=(seed,), **taps)
        (method,) = group_methods(records)
        extras = trace_layers(method, (0, 1)).extras
        wanted = {"rows_used": 4, "rows_no_gradient": 5, "g_noise": 0.1, "null_sd": 2.5}
        assert {name: np.unique(values).tolist() for name, values in extras.items()} == {
            name: [pytest.approx(value)] for name, value in wanted.items()
        }

    def test_a_cell_of_sizes_is_their_geometric_mean_over_seeds(self):
        sizes = {1: 1e-4, 2: 1e-2, 3: 1e-3}
        each = (over_epochs((0, 1), seeds=(s,), g_norm=lambda _, size=size: (size,) * 5) for s, size in sizes.items())
        records = [record for found in each for record in found]
        (method,) = group_methods(records)
        means = trace_layers(method, (0, 1)).means
        np.testing.assert_allclose(means["g_norm"], 1e-3)
        np.testing.assert_allclose(means["cos"], 0.5)

    def test_names_are_escaped(self):
        svg = draw_heatmap(history_of({"cos": [[0.1] * 5] * 2}), "cos", SIGNED, key="m3", method='<a "b">')
        (found,) = Page(svg).all("svg", data_heatmap="m3", data_quantity="cos")
        assert found["data-method"] == '<a "b">'


class TestSharedColumns:
    def methods(self, **epochs):
        return group_methods([r for rule, found in epochs.items() for r in over_epochs(found, rule=rule)])

    def test_methods_of_a_setting_have_one_set_of_columns(self):
        bp, dfa = self.methods(bp=(0, 1, 2, 9), dfa=(0, 2, 3))
        epochs = choose_epochs([bp, dfa], 24)
        assert epochs == (0, 1, 2, 3, 9)
        cells = read_cells(draw_heatmap(trace_layers(dfa, epochs), "cos", SIGNED, key="m0", method="m"), 5, 5)
        assert [[cell is not None for cell in row] for row in cells] == [[True, False, True, True, False]] * 5

    def test_an_early_end_keeps_its_column_and_so_does_the_last_epoch(self):
        methods = self.methods(bp=range(10), fa=range(10), dfa=(0, 4))
        assert choose_epochs(methods, 24) == tuple(range(10))
        assert choose_epochs(methods, 3)[::2] == (0, 9)
        assert 4 in choose_epochs(self.methods(bp=(0, 9), fa=(0, 9), dfa=(0, 4)), 24)

    def test_a_method_with_none_of_the_columns_has_its_own(self):
        _, dfa = self.methods(bp=(0, 9), dfa=(3, 5))
        history = trace_layers(dfa, (0, 9))
        assert history.epochs == (3, 5)
        assert not np.isnan(history.means["cos"]).any()


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=120, unique=True), st.integers(2, 30))
def test_of_picked_epochs_first_and_last_stay_and_order_too(epochs, most):
    epochs = sorted(epochs)
    found = pick(epochs, most)
    assert len(found) == min(most, len(epochs))
    assert set(found) <= set(epochs)
    assert list(found) == sorted(set(found))
    assert (found[0], found[-1]) == (epochs[0], epochs[-1])


class TestChart:
    def test_every_line_is_labelled_at_its_end(self):
        lines = [Curve(f"m{i}", "c0", (0, 1, 9), (0.1, 0.2, 0.3), (0.1, 0.1, 0.2), (0.1, 0.3, 0.4)) for i in range(3)]
        svg = draw_chart(lines, "Accuracy", log=False)
        assert [svg.count(f">m{i}<") for i in range(3)] == [1, 1, 1]
        assert svg.count('class="band') == svg.count('class="line') == 3
        places = [float(y) for y in re.findall(r'<text x="\d+" y="([\d.]+)" data-of="m\d">m', svg)]
        assert min(np.diff(places)) >= 13

    def test_labels_of_many_lines_stay_inside_and_differ(self):
        names = [f"direct feedback alignment, λ {i}" for i in range(40)]
        lines = [Curve(n, "c3", (0, 1, 9), (0.3,) * 3, (0.2,) * 3, (0.4,) * 3) for n in names]
        svg = draw_chart(lines, "Accuracy", log=False)
        (height,) = re.findall(r'viewBox="0 0 \d+ (\d+)"', svg)
        places = [float(y) for y in re.findall(r'<text x="\d+" y="([\d.]+)" data-of="[^"]*">direct', svg)]
        assert len(places) == 40
        assert max(places) < float(height)
        assert min(np.diff(places)) >= 12.9
        assert len(set(re.findall(r'">(direct[^<]*)</text>', svg))) == 40

    @pytest.mark.parametrize("values", [(1e-30, 1e-30, 1e-30), (5.0, 5.0, 5.0), (1e-8, 1e3, 1e30), (3.0, 3.5, 4.0)])
    def test_any_range_has_ticks(self, values):
        for log in (True, False):
            svg = draw_chart([Curve("m", "c0", (0, 1, 2), values, values, values)], "size", log=log)
            assert len(re.findall('class="grid"', svg)) >= 1
            assert "nan" not in svg

    def test_a_curve_is_of_the_seeds_that_did_not_diverge(self):
        good = over_epochs((0, 1, 2, 3), seeds=(1, 2))
        facts = good[0].facts
        bad = [make_snapshot(facts, epoch=e, accuracy=0.05, gamma=-0.3, taps={"h_norm": 1e9}) for e in (0, 1, 2)]
        gone = make_record(seed=3, epochs=3, diverged=3, snapshots=bad)
        charts = [draw_curves(group_methods(records), {"dfa": "c3"}) for records in ([*good, gone], good, [gone])]
        assert len(charts[0]) == 4
        assert charts[0] == charts[1]
        assert "DFA 0.05" in charts[2][0][1]  # if all diverged, they are all there is

    def test_a_curve_is_the_mean_over_seeds_within_the_lowest_and_the_highest(self):
        facts, records = make_facts(), []
        for seed, accuracy in ((1, 0.6), (2, 0.7), (3, 0.95)):
            sizes = {"h_norm": tuple(10.0 ** (seed + tap) for tap in range(5))}
            taken = [make_snapshot(facts, epoch=e, accuracy=accuracy - e / 10, taps=sizes) for e in range(3)]
            records.append(make_record(seed=seed, epochs=2, snapshots=taken))
        (method,) = group_methods(records)
        found = {name: _curve(method, name, "c3") for name in ("accuracy", "h_norm")}
        for name, ends in {"accuracy": (0.75, 0.6, 0.95), "h_norm": (1e6, 1e5, 1e7)}.items():
            curve, fall = found[name], np.arange(3) / 10 * (name == "accuracy")
            assert curve.epochs == (0, 1, 2)
            for values, first in zip((curve.mean, curve.low, curve.high), ends, strict=True):
                np.testing.assert_allclose(values, first - fall)

    @given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
    def test_labels_are_apart(self, wanted):
        placed = spread(sorted(wanted), 13, 0, 200)
        assert all(b - a >= 13 - 1e-6 for a, b in pairwise(placed))


def test_both_ends_of_a_bar_are_labelled():
    for low, high in ((-9, 1), (0, 10), (-7, 2), (0, 1), (-30, 3)):
        places = [place for place, _ in Scale("log", low, high).ticks()]
        assert (places[0], places[-1]) == (0, 1)
        assert min(b - a for a, b in pairwise(places)) > 0.1


def test_seeds_behind_a_number_are_said_where_they_are_fewer():
    assert _size([0.0, 1.0, None], ".2g") == "0 in 1 of 3 seeds"
    assert _size([0.0, 0.0], ".2g") == "0"
    assert _size([None, None], ".2g") == "–"
    assert _size([1e-3, 1e-3, None], ".2g").endswith("(n = 2)")
