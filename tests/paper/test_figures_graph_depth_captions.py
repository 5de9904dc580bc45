"""Figure `graph_depth`: which depth it speaks of, and that captions, matrix and tables follow the data."""

import re

import numpy as np
import pytest
from graph_grids import (
    FAILS,
    KAFT,
    MAJORITY,
    RECIPE,
    SEEDS,
    accuracies,
    by_key,
    changed,
    diverged,
    drawn,
    make_grid,
    make_run,
    panel,
    said_in,
    said_of,
    words,
)
from pages import texts
from scipy import stats

from creditscope.errors import CreditscopeError
from creditscope.paper.figures.graph_depth import describe, plot_graph_depth
from creditscope.paper.studies.graph_depth import METHODS, RULES, SQRT2, Method, graph_depth


class TestSubject:
    """The depth that the matrix and the captions speak of."""

    @pytest.mark.slow
    def test_it_is_where_bp_by_the_recipe_first_fails(self):
        found = make_grid()
        fig = plot_graph_depth(changed(found, "citeseer", 8, RECIPE, accuracy=0.3))
        for task, depth in (("cora", FAILS), ("citeseer", 8)):
            title = panel(fig, task, "matrix").get_title().replace("\u00a0", " ").replace("\n", " ")
            assert title == f"rule − BP, pp, at L = {depth}, where BP by the recipe first fails"
            for kind in ("rules", "variants"):
                (line,) = [ln for ln in panel(fig, task, kind).lines if ln.get_gid() == "first failure"]
                assert list(line.get_xdata()) == [depth, depth]
        said = texts(fig)
        recipe = words(accuracies(FAILS, RECIPE))
        assert f"Cora. BP by the recipe first fails at L = 12 ({recipe}; majority class .32)." in said
        assert "CiteSeer. BP by the recipe first fails at L = 8 (.30 ± 0; majority class .32)." in said
        differences = 100 * np.subtract(accuracies(8, KAFT, "citeseer"), 0.3)
        assert said_in(panel(fig, "citeseer", "matrix"), "kaft BP") == f"{np.mean(differences):+.0f}"

    def test_it_is_the_deepest_where_bp_never_fails(self):
        found = make_grid(tasks=("cora",))
        records = changed(found, "cora", FAILS, RECIPE, accuracy=0.8)
        records = changed(by_key(found, records), "cora", 16, RECIPE, accuracy=0.8)
        fig = plot_graph_depth(records)
        assert "BP by the recipe fails at no depth on record (at L = 16 .80 ± 0; majority class .32)." in texts(fig)
        assert "at L = 16, the deepest (BP by the recipe fails nowhere)" in texts(fig)
        assert not [ln for ln in panel(fig, "cora", "rules").lines if ln.get_gid() == "first failure"]
        assert said_in(panel(fig, "cora", "matrix"), "kaft BP") == f"−{80 - 100 * np.mean(accuracies(16, KAFT)):.0f}"

    @pytest.mark.parametrize(("excess", "depth"), [(0.0499, 8), (0.0501, FAILS)])
    def test_failing_is_not_being_above_the_majority_class_by_the_margin(self, excess, depth):
        records = changed(make_grid(tasks=("cora",)), "cora", 8, RECIPE, accuracy=MAJORITY + excess)
        assert f"BP by the recipe first fails at L = {depth} (" in said_of(records)

    def test_a_bp_that_diverged_has_failed(self):
        said = said_of(diverged(make_grid(tasks=("cora",)), ("cora", 8, RECIPE)))
        assert "BP by the recipe first fails at L = 8 (every seed diverged; majority class .32)." in said

    def test_records_without_a_majority_class_are_refused(self):
        wanted, *_ = graph_depth("paper").runs
        bare = make_run(wanted, accuracy=0.5, gamma=1.0, majority=None)
        with pytest.raises(CreditscopeError, match="Expected the share of the majority class in the records of 'cora'"):
            plot_graph_depth([bare])


def _mean_and_error(depth: int, method: Method) -> tuple[float, float]:
    values = accuracies(depth, method)
    return float(np.mean(values)), float(stats.sem(values))


class TestCaptions:
    def test_rules_train_fail_diverge_or_are_undecided(self):
        found = make_grid(tasks=("cora",), depths=(2, FAILS))
        for seed, accuracy in zip(SEEDS, (0.9, 0.3, 0.85), strict=True):
            found = by_key(found, changed(found, "cora", FAILS, RULES[1], seed, accuracy=accuracy))
        found = by_key(found, changed(found, "cora", FAILS, RULES[0], accuracy=0.36))
        found = by_key(found, diverged(found, ("cora", FAILS, RULES[2])))
        said = said_of(list(found.values()))
        kaft, spread = words(accuracies(FAILS, KAFT)), words([0.9, 0.3, 0.85])
        assert f"There KAFT ({kaft}) trains; DFA-GNN ({spread}) is undecided; DFA (.36 ± 0) fails; GrAPE div" in said
        said = said_of([r for k, r in found.items() if k[2] != KAFT])
        assert "There no rule trains; DFA-GNN" in said
        assert "kaft is not on record." in said
        assert "the best rule" not in said

    def test_a_rule_with_diverged_runs_does_not_train(self):
        said = said_of(diverged(make_grid(tasks=("cora",), depths=(FAILS,)), ("cora", FAILS, KAFT, SEEDS[0])))
        assert f"KAFT ({words(accuracies(FAILS, KAFT)[1:])}) is undecided" in said

    def test_the_best_rule_is_compared_in_pairs_with_every_single_change(self):
        found = make_grid(tasks=("cora",))
        for seed, accuracy in zip(SEEDS, (0.71, 0.53, 0.62), strict=True):
            place = "cora", FAILS
            found = by_key(found, changed(found, *place, Method("bp", decay=False), seed, accuracy=accuracy))
            residual, both = (Method("bp", residual=True, decay=decay) for decay in (True, False))
            found = by_key(found, changed(found, *place, residual, seed, accuracy=0.75 + 0.01 * seed))
            found = by_key(found, changed(found, *place, both, seed, accuracy=0.8 + 0.01 * seed))
        sentence = said_of(list(found.values())).partition("KAFT, the best rule, is ")[2].partition(". ")[0]
        parts = {}
        for name, method in {
            "gain √2": Method("bp", gain=SQRT2),
            "gain 2": Method("bp", gain=2.0),
            "residual": Method("bp", residual=True),
            "no decay": Method("bp", decay=False),
            "residual + no decay": Method("bp", residual=True, decay=False),
        }.items():
            others = [found["cora", FAILS, method, s].last.accuracy for s in SEEDS]
            low, high = stats.ttest_rel(accuracies(FAILS, KAFT), others).confidence_interval(0.95)
            size = f"{50 * (low + high):+.1f} ± {50 * (high - low):.1f}".replace("-", "−")
            best = f"; the best BP, {words(others)}" if "+" in name else ""
            parts[name] = f"{name} ({size}{best})", "above" if low > 0 else "below" if high < 0 else ""
        assert [answer for _, answer in parts.values()] == ["above", "above", "below", "", "below"]
        assert sentence == (
            f"above BP with {parts['gain √2'][0]} and {parts['gain 2'][0]}, not told apart from BP with "
            f"{parts['no decay'][0]}, below BP with {parts['residual'][0]} and {parts['residual + no decay'][0]}; "
            "GrAPE is above BP with gain √2 (pp, n = 3)"
        )

    def test_the_deepest_that_train_are_named(self):
        found = make_grid(tasks=("cora",), depths=(2, FAILS, 16))
        said = said_of(list(found.values()))
        kaft, best = (words(accuracies(16, m)) for m in (KAFT, Method("bp", residual=True, decay=False)))
        assert f"Deepest to train: BP with residual + no decay ({best}), " in said
        trained = [m for m in METHODS if stats.t.interval(0.95, 2, *_mean_and_error(16, m))[0] > MAJORITY + 0.05]
        rules = [m for m in trained if m.rule != "bp"]
        assert [m.rule for m in rules] == ["dfa_gnn", "grape", "kaft"]
        assert f" and {len(trained) - 3} more at L = 16; of the rules KAFT ({kaft}), GrAPE (" in said
        assert "Nothing trains at any depth." in said_of(changed(found, "cora", accuracy=0.3))

    def test_only_bp_goes_deepest(self):
        found = make_grid(tasks=("cora",), depths=(2, FAILS, 16))
        for rule in RULES:
            found = by_key(found, changed(found, "cora", 16, rule, accuracy=0.2))
        said = said_of(list(found.values()))
        assert " more at L = 16; of the rules" in said
        rules = said.partition("; of the rules ")[2].partition(". ")[0]
        assert rules.startswith(f"KAFT ({words(accuracies(FAILS, KAFT))}), GrAPE (")
        assert rules.endswith(" at L = 12")

    @pytest.mark.slow
    def test_diverged_runs_are_counted_in_panel_caption_and_table(self):
        found = make_grid(tasks=("cora",))
        records = diverged(found, ("cora", 16, KAFT), ("cora", 16, RULES[0], 1), ("cora", 8, RULES[0], 2))
        fig, said = plot_graph_depth(records), said_of(records)
        ax = panel(fig, "cora", "rules")
        assert [t.get_text() for t in ax.texts if t.get_gid() == "lost"] == ["1 diverged", "4 diverged"]
        assert np.isnan(drawn(ax, "accuracy KAFT")).tolist() == [False, False, False, True]
        assert not [t for t in panel(fig, "cora", "variants").texts if t.get_gid() == "lost"]
        assert "Diverged: 1 of 36 runs at L = 8 and 4 of 36 runs at L = 16 (KAFT 3, DFA 2)." in said
        assert re.search(r"KAFT( \S+ ± \S+){3} 3 of 3 diverged", said)
        assert "not on record" not in said
        assert "not on record" not in texts(fig).replace("runs diverged or not on record", "")
        said = said_of([r for r in records if r.spec and (r.spec.seed, r.spec.rule) != (3, "grape")])
        assert "Diverged: 1 of 35 runs at L = 8 and 4 of 35 runs at L = 16 (KAFT 3, DFA 2)." in said
        assert "No run diverged." in said_of(list(found.values()))

    def test_missing_runs_are_marked(self):
        found = make_grid(tasks=("cora",))
        kept = [r for k, r in found.items() if k[1:3] != (FAILS, RULES[2])]
        fig = plot_graph_depth(kept)
        ax = panel(fig, "cora", "rules")
        assert np.isnan(drawn(ax, "accuracy GrAPE")).tolist() == [False, False, True, False]
        assert [text.get_text() for text in ax.texts if text.get_gid() == "lost"] == ["3 not on record"]
        assert "Cora: 3 runs not on record or not complete." in texts(fig)
        assert "GrAPE is not on record." in texts(fig)
        assert said_in(panel(fig, "cora", "matrix"), "grape BP") == "–"
        assert "3 of 3 not on record" in describe(kept)

    def test_a_rule_without_runs_is_said(self):
        assert "nothing of kaft" in said_of([r for k, r in make_grid(tasks=("cora",)).items() if k[2] != KAFT])

    def test_missing_alignment_is_said_and_breaks_the_line(self):
        fig = plot_graph_depth(changed(make_grid(tasks=("cora",)), "cora", 16, RULES[1], gamma=None))
        assert "Cora: 3 runs without Γ." in texts(fig)
        assert np.isnan(drawn(panel(fig, "cora", "gamma"), "gamma DFA-GNN")[3])

    def test_what_is_drawn_is_printed_and_the_rest_printed_only(self):
        found = list(make_grid(tasks=("cora",), depths=(8, FAILS)).values())
        printed, page = said_of(found), texts(plot_graph_depth(found))
        for start in (
            "BP by the recipe first fails at",
            "There KAFT",
            "GCN, hidden width",
        ):
            assert printed[printed.index(start) :].partition(". ")[0] in page
        for start in ("KAFT, the best rule", "Deepest to", "Best rule and best of"):
            assert start in printed
            assert start not in page

    def test_the_best_bp_of_every_depth_is_printed(self):
        found = make_grid(tasks=("cora",), depths=(2, 16))
        best = Method("bp", gain=2.0)
        said = said_of(changed(found, "cora", 2, best, accuracy=0.99))
        assert "best BP gain 2 residual, no decay" in said
        low, high = 100 * (min(accuracies(2, KAFT)) - 0.99), 100 * (max(accuracies(2, KAFT)) - 0.99)
        table = said.partition("best BP gain 2")[2]
        shown = float(table.partition("KAFT ")[2].split()[0].replace("−", "-"))
        assert low < shown < high

    def test_the_bps_that_have_runs_are_counted(self):
        found = make_grid(tasks=("cora",), depths=(2, FAILS))
        assert "best of 8 BPs" in said_of(list(found.values()))
        few = [r for key, r in found.items() if key[2].decay]
        assert "best of 4 BPs" in said_of(few)
        assert "the 3 other BPs, worst to best mean" in texts(plot_graph_depth(few))

    def test_the_recipe_is_read_from_the_specs(self):
        said = said_of(list(make_grid(tasks=("cora",)).values()))
        assert "hidden width 64, Adam, lr 0.01 (constant), decay 0.0005 on all layers (an L2 term" in said
        assert "100 epochs, float32, seeds 1, 2, 3 (n = 3)" in said
