"""Figures made of panels, and the doors to them."""

import subprocess
import sys
from functools import partial

import pytest
import torch
from builders import make_family, make_record
from drawn import words
from matplotlib.figure import Figure
from pages import assert_clear, texts
from torch import nn

import creditscope as cs
from creditscope import plots
from creditscope.errors import CreditscopeError
from creditscope.record import RuleFacts
from creditscope.text import visible

pytestmark = pytest.mark.slow


def labels(fig):
    return [ax.get_label() for ax in fig.axes]


class TestOverview:
    def test_it_has_four_panels_and_nothing_touches(self, runs):
        fig = plots.overview(runs)
        assert sorted(labels(fig)) == ["credit", "pair", "sizes", "verdicts"]
        assert "digits · resmlp (depth 2, width 8) · 1 epoch" in texts(fig)
        assert_clear(fig)

    def test_many_panels_are_laid_out_together(self, monkeypatch):
        """Before end labels, before notes, before labels of points, and once more; not so often for every panel."""
        count, lay_out = [], Figure.draw_without_rendering
        monkeypatch.setattr(Figure, "draw_without_rendering", lambda fig: count.append(fig) or lay_out(fig))
        fig = plots.overview([make_record(rule=rule) for rule in ("bp", "dfa")])
        assert len(count) == 4
        assert all({"BP", "DFA"} <= set(words(ax)) for ax in fig.axes if ax.get_label() != "pair")
        assert all(ax.get_title(loc="left") for ax in fig.axes if ax.get_label() != "verdicts")

    def test_names_are_in_the_verdicts_where_there_are_too_many_for_panels(self):
        records = [
            make_record(rule="dfa", credit_norm=norm, penalty=p) for norm in ("none", "batch") for p in (0, 1, 2, 3)
        ]
        fig = plots.overview(records)
        assert_clear(fig)
        by_label = dict(zip(labels(fig), fig.axes, strict=True))
        assert words(by_label["credit"]) == []
        assert {"DFA", "DFA, norm batch, λ 3"} <= set(words(by_label["verdicts"]))

    def test_methods_of_one_rule_have_looks_of_their_own(self):
        records = [make_record(rule="dfa", penalty=p) for p in (3, 2, 1, 0)]
        (ax,) = plots.overview(records, panels=["verdicts"]).axes
        colours = {text.get_text(): text.get_color() for text in ax.texts if text.get_text().startswith("DFA")}
        assert len(set(colours.values())) == 4
        assert colours["DFA"] == "#b2182b"

    def test_panels_are_chosen_by_name_or_as_functions(self, runs):
        fig = plots.overview(runs, panels=("ladder", partial(plots.sizes, quantity="h_norm")))
        assert [ax.get_ylabel() for ax in fig.axes] == ["accuracy", "‖hₗ‖ per sample, median"]
        with pytest.raises(CreditscopeError, match=r"Expected the name of a panel, but got 'nope'\. Choices: credit"):
            plots.overview(runs, panels=["nope"])

    def test_a_panel_that_nobody_measured_says_so(self):
        fig = plots.overview([make_record(accuracy=None)])
        assert "values of accuracy, but got none" in texts(fig)

    def test_panels_without_text_and_without_rungs(self):
        records = [make_record()]
        assert len(plots.overview(records, panels=(lambda records, ax: ax,)).axes) == 1
        assert "Expected records with values of accuracy with only" in texts(plots.overview(records, panels=["ladder"]))
        with pytest.raises(CreditscopeError, match=r"Expected at least one panel, but got none\. Choose among pair"):
            plots.overview(records, panels=())

    def test_several_settings_are_named(self):
        records = [make_record(rule="bp", task=task) for task in ("mnist1d", "digits")]
        said = r"Expected records of one task, net and recipe.*got 2 settings: 'mnist1d · .*', 'digits · .*'\. Select"
        with pytest.raises(CreditscopeError, match=said):
            plots.overview(records)

    def test_all_diverged_still_has_verdicts(self):
        fig = plots.overview([make_record(seed=s, diverged=1) for s in (1, 2)])
        assert "not measured" in texts(fig)


class TestDoors:
    def test_runs(self, runs):
        assert texts(runs.plot()) == texts(plots.overview(runs.records))

    def test_scope(self, scope):
        fig = scope.plot()
        assert [ax.get_xlabel() for ax in fig.axes] == ["tap (h₀: stem)", "tap (h₀: stem)", "epoch"]
        assert fig.axes[2].get_ylabel() == "accuracy"
        assert_clear(fig)

    def test_scope_with_a_loss_of_its_own(self, own_stream):
        scope = cs.watch(
            nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 1)), taps="0", loss=lambda o, t: ((o - t) ** 2).sum(-1)
        )
        scope.snapshot(torch.randn(30, 4), torch.randn(30, 1), tier="quick")
        assert scope.plot().axes[2].get_ylabel() == "loss"

    def test_scope_without_snapshots(self):
        scope = cs.watch(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), taps="0")
        with pytest.raises(CreditscopeError, match=r"Expected at least one snapshot, but got none\. Call snapshot"):
            scope.plot()

    def test_files_are_the_same_again(self, tmp_path):
        records = make_family("dfa")
        first, again = (plots.save_figure(plots.overview(records), tmp_path / n, "page") for n in "ab")
        assert [path.name for path in first] == ["page.png", "page.pdf"]
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]

    def test_importing_costs_neither_torch_nor_matplotlib(self):
        code = """
import sys
from creditscope import plots
assert not {"torch", "matplotlib"} & set(sys.modules)
for name in plots.__all__:
    getattr(plots, name)
assert "torch" not in sys.modules
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def test_unknown_names_are_refused(self):
        with pytest.raises(AttributeError, match="has no attribute 'nope'"):
            _ = plots.nope


@pytest.mark.parametrize("label", [r"$\nope{$", "DFA\nBP", "a $ and $ b"])
def test_a_label_is_drawn_as_it_is(label, tmp_path):
    rule = RuleFacts(name="mine", label=label)
    records = [make_record(seed=s, facts={"rule": rule}) for s in (1, 2)]
    fig = plots.overview(records)
    plots.save_figure(fig, tmp_path, "mine")
    written = visible(label).replace("$", r"\$")
    assert any(text.get_text() == written for ax in fig.axes for text in ax.texts)


def test_a_figure_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    fig = plots.overview([make_record(seed=s) for s in (1, 2)])
    png, pdf = plots.save_figure(fig, tmp_path, "mine")
    before = png.read_bytes(), pdf.read_bytes()
    fig.set_facecolor("red")
    (tmp_path / "mine.pdf.part").mkdir()
    with pytest.raises(IsADirectoryError):
        plots.save_figure(fig, tmp_path, "mine")
    assert (png.read_bytes(), pdf.read_bytes()) == before


def test_without_a_font_it_is_said(monkeypatch):
    def nothing(*_):
        raise ValueError

    monkeypatch.setattr("creditscope.plots._style.findfont", nothing)
    with pytest.raises(CreditscopeError, match="DejaVu"):
        plots.overview([make_record(seed=s) for s in (1, 2)])
