"""Credit and sizes per tap."""

import matplotlib
import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot
from drawn import artist, line, note, of_rule, words
from matplotlib.figure import Figure
from scipy import stats

from creditscope import plots
from creditscope.errors import CreditscopeError

RECORDED = ("credit", "sizes", "pair", "over_epochs", "ladder", "verdicts", "overview")


def per_tap(records, name):
    return np.array([getattr(r.last.taps, name) for r in records], dtype=float)


def heights(ax, label):
    """Values by tap, of filled and hollow markers together."""
    found = [xy for kind in ("filled", "hollow") for xy in line(ax, f"{label} {kind}").T]
    return np.array([y for _, y in sorted(found, key=lambda xy: xy[0])])


class TestCredit:
    def test_means_and_intervals_are_those_of_the_records(self, runs):
        ax = plots.credit(runs)
        cos = per_tap(of_rule(runs.records, "dfa"), "cos")
        np.testing.assert_allclose(heights(ax, "DFA"), cos.mean(axis=0))
        half = stats.t.ppf(0.975, 1) * cos.std(axis=0, ddof=1) / np.sqrt(2)
        bars = [bar.lines[2][0].get_segments() for bar in ax.containers if hasattr(bar, "has_yerr")]
        drawn = [[ends[1, 1] - ends[0, 1] for ends in segments] for segments in bars]
        assert any(np.allclose(found, 2 * half) for found in drawn)

    def test_the_band_is_that_of_methods_without_exact_credit(self, runs):
        ax = plots.credit(runs)
        sds = per_tap(of_rule(runs.records, "dfa"), "null_sd").mean(axis=0)
        (band,) = [c for c in ax.containers if not hasattr(c, "has_yerr")]
        np.testing.assert_allclose([bar.get_height() for bar in band], 2 * stats.norm.ppf(0.975) * sds)
        np.testing.assert_allclose([bar.get_y() for bar in band], -stats.norm.ppf(0.975) * sds)
        assert "grey: random orientation of one run, 95 %" in note(ax)

    def test_markers_are_hollow_where_credit_is_exact(self, runs):
        ax = plots.credit(runs)
        assert line(ax, "BP hollow").shape == (2, 3)
        assert line(ax, "BP filled").shape == (2, 0)
        assert artist(ax, "BP hollow").get_markerfacecolor() == "white"
        records = [make_record(rule="bp", facts={"exact_taps": (2, 4)})]
        ax = plots.credit(records)
        assert np.round(line(ax, "BP hollow")[0]).tolist() == [2, 4]
        assert np.round(line(ax, "BP filled")[0]).tolist() == [0, 1, 3]

    def test_the_stem_is_not_joined(self, runs):
        assert np.round(line(plots.credit(runs), "DFA line")[0]).tolist() == [1, 2]

    def test_names_are_beside_the_lines_and_can_be_left_out(self, runs):
        assert sorted(words(plots.credit(runs))) == ["BP", "DFA"]
        assert words(plots.credit(runs, labels=False)) == []

    def test_it_is_drawn_on_axes_that_are_given_and_leaves_settings_alone(self, runs):
        before, ax = dict(matplotlib.rcParams), Figure().add_subplot()
        assert plots.credit(runs, ax=ax) is ax
        assert dict(matplotlib.rcParams) == before

    def test_another_null_has_a_mean_of_its_own(self):
        taps = {"descent": 0.4, "descent_null": 0.1, "descent_null_sd": 0.02}
        ax = plots.credit([make_record(seed=s, taps=taps) for s in (1, 2)], quantity="descent")
        (band,) = [c for c in ax.containers if not hasattr(c, "has_yerr")]
        assert band[0].get_y() + band[0].get_height() / 2 == pytest.approx(0.1)
        assert band[0].get_height() == pytest.approx(2 * stats.norm.ppf(0.975) * 0.02)

    def test_a_watched_model_is_drawn(self, scope):
        ax = plots.credit(scope)
        np.testing.assert_allclose(heights(ax, "DFA, measured only"), scope.snapshots[-1].taps.cos)
        assert note(ax).startswith("one run;")

    def test_settings_side_by_side_are_told_apart_by_what_differs(self):
        records = [make_record(rule="bp", epochs=epochs) for epochs in (1, 2)]
        assert sorted(words(plots.credit(records))) == ["BP, 1 epoch", "BP, 2 epochs"]

    def test_runs_that_diverged_are_said_and_not_drawn(self):
        records = [make_record(seed=1), make_record(seed=2, diverged=1), make_record(rule="fa", diverged=1)]
        ax = plots.credit(records)
        assert "diverged, not drawn: DFA (1 of 2), FA (1 of 1)" in note(ax)
        assert words(ax) == ["DFA"]


class TestSizes:
    def test_geometric_means_and_sds_are_those_of_the_records(self, runs):
        ax = plots.sizes(runs)
        logs = np.log10(per_tap(of_rule(runs.records, "dfa"), "g_norm"))
        np.testing.assert_allclose(heights(ax, "DFA"), 10 ** logs.mean(axis=0))
        assert ax.get_yscale() == "log"
        mean, sd = logs.mean(axis=0), logs.std(axis=0, ddof=1)
        expected = np.array([10 ** (mean - sd), 10 ** (mean + sd)])
        bars = [np.array([ends[:, 1] for ends in bar.lines[2][0].get_segments()]).T for bar in ax.containers]
        assert any(np.allclose(found, expected) for found in bars)

    def test_growth_is_a_ratio_of_sizes(self, runs):
        rms = per_tap(of_rule(runs.records, "bp"), "h_rms")
        found = heights(plots.sizes(runs, "growth"), "BP")
        np.testing.assert_allclose(found[1:], 10 ** np.log10(rms[:, 1:] / rms[:, :-1]).mean(axis=0))
        assert np.isnan(found[0])

    def test_zeros_are_said(self):
        ax = plots.sizes([make_record(taps={"g_norm": (1.0, 1.0, 0.0, 0.0, 1.0)})])
        assert "values of 0 or less, not drawn: 2" in note(ax)

    def test_a_single_run_has_no_bars(self):
        ax = plots.sizes([make_record()])
        assert np.ptp([ends[:, 1] for ends in ax.containers[0].lines[2][0].get_segments()], axis=1).max() == 0


class TestRefusals:
    @pytest.mark.parametrize("draw", [getattr(plots, name) for name in RECORDED])
    def test_no_records(self, draw):
        with pytest.raises(CreditscopeError, match=r"Expected at least one finished record to draw, but got none\. Tr"):
            draw([])

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("out/records", "Expected records, runs or a scope to draw, but got str"),
            ([make_record(frozen=True)], "Expected a run whose blocks are all trained, but got frozen"),
            ([make_record(status="running")], "but got none among 1 that did not finish"),
        ],
    )
    def test_what_is_no_usable_record(self, given, said):
        with pytest.raises(CreditscopeError, match=said):
            plots.credit(given)

    @pytest.mark.parametrize(("draw", "quantity"), [(plots.credit, "rho"), (plots.sizes, "head_taps.g_noise")])
    def test_what_nobody_measured(self, draw, quantity):
        bare = make_record(taps={"g_noise": None, "rho": None})
        with pytest.raises(CreditscopeError, match=f"{quantity}, but got none"):
            draw([bare], quantity=quantity)

    def test_what_may_be_negative_is_no_size(self, runs):
        with pytest.raises(CreditscopeError, match=r"plots\.credit\(records, quantity='cos'\)"):
            plots.sizes(runs, "cos")

    @pytest.mark.parametrize("draw", [plots.credit, plots.sizes])
    def test_what_is_no_quantity_of_a_tap(self, runs, draw):
        with pytest.raises(CreditscopeError, match="Expected the name of a quantity of a tap, but got 'accuracy'"):
            draw(runs, quantity="accuracy")

    def test_a_method_without_the_quantity_is_named(self):
        facts = make_facts(rule="fa")
        lacking = make_record(rule="fa", snapshots=[make_snapshot(facts, epoch=1, taps={"rho": ()})])
        ax = plots.credit([make_record(), lacking], quantity="rho")
        assert "not measured: FA" in note(ax)
