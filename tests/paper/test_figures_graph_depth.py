"""Study `graph_depth` and its two figures: which runs, who trains, and that what is drawn follows the records."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot
from drawn import head, line
from pages import assert_clear
from scipy import stats

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import graph_rules
from creditscope.paper.figures._graphs import name
from creditscope.paper.figures.graph_depth import describe, plot_graph_depth
from creditscope.paper.figures.graph_rules import plot_graph_rules
from creditscope.paper.studies import collect, find_missing
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, RULES, graph_depth, method_of
from creditscope.train.plan import plan_run

pytestmark = pytest.mark.slow
RECIPE, (DFA, DFA_GNN, GRAPE, KAFT) = BP_VARIANTS[0], RULES
SEEDS, DEPTHS, MAJORITY = (1, 2, 3), (2, 8, 12, 16), 0.319
FAILS, ACCURACY = 12, "accuracy at L = 12"
"""Where BP by the recipe first fails below: 0.8 − 0.04 · 12 is not above the majority class by 5 pp."""
SLOPES = {"bp": 0.04, "dfa": 0.03, "dfa_gnn": 0.025, "grape": 0.02, "kaft": 0.01}
LOST = {"status": "diverged", "diverged_epoch": 3}


def make_run(wanted, *, majority=MAJORITY, **measures):
    facts = {"rule": wanted["rule"], "classes": 7, "chance": 1 / 7, "best_constant": majority}
    snapshots = [make_snapshot(make_facts(**facts), epoch=e, **measures) for e in (0, wanted["epochs"])]
    return make_record(**{**wanted, "facts": facts, "snapshots": snapshots})


@cache
def make_grid(*, tasks=("cora",), depths=DEPTHS, seeds=SEEDS):
    """By (task, depth, method, seed): accuracy falls with depth, less so with gain, a residual or no decay."""
    found = {}
    for wanted in graph_depth("paper", tasks=tasks, depths=depths, seeds=seeds).runs:
        method, depth, seed = method_of(make_record(**wanted).spec), wanted["net_options"]["depth"], wanted["seed"]
        slope = SLOPES[method.rule] / (method.gain * (3 if method.residual else 1) * (1 if method.decay else 1.5))
        accuracy = 0.8 - slope * depth + 0.01 * np.sin(seed * (2 + len(method.rule)))
        gamma = 1.0 if method.rule == "bp" else 0.9 - 0.02 * depth + 0.01 * seed
        found[wanted["task"], depth, method, seed] = make_run(wanted, accuracy=accuracy, gamma=gamma)
    return found


def changed(found, *key, lost=False, **measures):
    """The records, with last measures changed, or diverged, in those whose key starts so."""
    found = dict(found)
    for own in [own for own in found if own[: len(key)] == key]:
        record = found[own]
        record = replace(record, snapshots=(record.snapshots[0], replace(record.last, **measures)))
        found[own] = replace(record, provenance=replace(record.provenance, **(LOST if lost else {})))
    return found


def accuracies(found, depth, method, task="cora"):
    return [record.last.accuracy for own, record in found.items() if own[:3] == (task, depth, method)]


def interval(values):
    return stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))


def plot(found):
    """By graph the axes of both figures: rules, variants, Γ and matrix."""
    figures = [draw(list(found.values())) for draw in (plot_graph_depth, plot_graph_rules)]
    halves = [[fig.axes[i : i + 2] for i in range(0, len(fig.axes), 2)] for fig in figures]
    return [[*above, *below] for above, below in zip(*halves, strict=True)]


def drawn(ax, gid):
    return line(ax, gid)[1]


def state(found, quantity):
    """What the figures say of a quantity, by group."""
    said = [s for about in (describe, graph_rules.describe) for s in about(list(found.values())).statements]
    return {s.group: s for s in said if s.quantity == quantity}


def test_the_runs_of_the_study_can_be_planned_and_are_found_again():
    assert len(graph_depth("paper").runs) == 3 * 8 * 12 * 5
    study = graph_depth("test", seeds=(1,), depths=(3,))
    specs = [plan_run(**wanted) for wanted in study.runs]
    assert [method_of(spec) for spec in specs] == list(METHODS)
    records = [make_record(**vars(spec)) for spec in specs]
    assert find_missing(study, records) == []
    assert find_missing(study, records[1:]) == [study.runs[0]]


def test_it_is_trained_and_drawn(tmp_path):
    study = graph_depth("test", seeds=(1,), depths=(3,), methods=(RECIPE, BP_VARIANTS[-1], *RULES[:2]))
    records = collect(study, tmp_path, train=True, problems=[], slots=1, device="cpu")
    rules, variants, *_ = plot_graph_depth(records).axes
    for record in records:
        method = method_of(record.spec)
        ax = variants if method.rule == "bp" else rules
        assert drawn(ax, f"accuracy {name(method)}") == [record.last.accuracy]


def test_lines_and_bars_are_means_and_t_intervals_of_the_records():
    found = changed(make_grid(tasks=("citeseer", "cora")), "cora", 8, KAFT, 1, accuracy=0.7)
    axes = plot(found)
    heads = [head(own[0]) for own in axes]
    assert [letter for letter, _ in heads] == ["A", "B"]
    assert [title.partition(":")[0] for _, title in heads] == ["Cora", "CiteSeer"]
    for task, (rules, variants, gamma, _) in zip(("cora", "citeseer"), axes, strict=True):
        means = {m: [np.mean(accuracies(found, d, m, task)) for d in DEPTHS] for m in METHODS}
        for method, mean in means.items():
            ax = variants if method.rule == "bp" else rules
            np.testing.assert_allclose(drawn(ax, f"accuracy {name(method)}"), mean)
        np.testing.assert_allclose(drawn(gamma, "gamma KAFT"), [0.88, 0.76, 0.68, 0.6])
        bars = [path.vertices[:, 1] for own in rules.collections for path in own.get_paths()]
        wanted = interval(accuracies(found, 8, KAFT, task))
        assert any(np.allclose(bar, wanted) for bar in bars if len(bar) == 2)
        (span,) = [own for own in rules.collections if own.get_gid() == "other BP"]
        others = [means[m] for m in BP_VARIANTS[1:]]
        edges = np.ravel([np.min(others, axis=0), np.max(others, axis=0)])
        assert np.isclose(span.get_paths()[0].vertices[:, 1][:, None], edges).any(axis=0).all()


def test_cells_and_statements_are_paired_differences():
    found = changed(make_grid(), "cora", FAILS, BP_VARIANTS[2], accuracy=0.9)
    for seed, accuracy in zip(SEEDS, (0.71, 0.53, 0.62), strict=True):
        found = changed(found, "cora", FAILS, BP_VARIANTS[4], seed, accuracy=accuracy)
    ((*_, matrix),) = plot(found)
    said = state(found, f"KAFT − BP at L = {FAILS}, pp")
    for method in BP_VARIANTS:
        own, other = (accuracies(found, FAILS, m) for m in (KAFT, method))
        low, high = stats.ttest_rel(own, other).confidence_interval(0.95)
        one = said[name(method)]
        assert (one.value.low, one.value.high) == pytest.approx((100 * low, 100 * high))
        assert one.verdict == ("above" if low > 0 else "below" if high < 0 else "")
        (text,) = [text for text in matrix.texts if text.get_gid() == f"KAFT {name(method)}"]
        assert int(text.get_text().replace("−", "-")) == round(50 * (low + high))
        assert (text.get_weight() == "bold") == bool(one.verdict)
    assert {one.verdict for one in said.values()} == {"above", "below", ""}
    best = state(found, f"rule − BP, gain 2, the best BP at L = {FAILS}, pp")
    assert best["KAFT"].value == said["BP, gain 2"].value


@pytest.mark.parametrize(
    ("level", "depth"),
    [({"accuracy": MAJORITY + 0.0499}, 8), ({"accuracy": MAJORITY + 0.0501}, FAILS), ({"lost": True}, 8)],
)
def test_bp_fails_where_it_is_not_above_the_majority_class_by_the_margin(level, depth):
    found = changed(make_grid(), "cora", 8, RECIPE, **level)
    assert state(found, "first depth at which it fails")["BP by the recipe"].value == depth
    assert "KAFT" in state(found, f"accuracy at L = {depth}")
    for ax in plot(found)[0][:2]:
        assert [line.get_xdata()[0] for line in ax.lines if line.get_gid() == "first failure"] == [depth]


def test_titles_tell_where_bp_fails_and_who_is_above_the_best_bp():
    ((rules, _, gamma, _),) = plot(make_grid())
    assert head(rules)[1].endswith(f"fails at L = {FAILS}")
    assert "no rule above the best BP" in head(gamma)[1]
    ((rules, _, gamma, _),) = plot(changed(make_grid(depths=(2, 8)), "cora", 8, KAFT, accuracy=0.99))
    assert head(rules)[1] == "Cora"
    assert head(gamma)[1] == "Cora, L = 8: KAFT above the best BP"


def test_where_bp_never_fails_the_deepest_is_shown():
    found = changed(make_grid(depths=(2, 8)), "cora", 8, RECIPE, accuracy=0.8)
    assert state(found, "first depth at which it fails")["BP by the recipe"].value == "none"
    assert "KAFT" in state(found, "accuracy at L = 8")
    assert not [line for line in plot(found)[0][0].lines if line.get_gid() == "first failure"]


def test_rules_train_fail_diverge_or_are_undecided():
    found = changed(changed(make_grid(), "cora", FAILS, DFA, accuracy=0.36), "cora", FAILS, GRAPE, lost=True)
    for seed, accuracy in zip(SEEDS, (0.9, 0.3, 0.85), strict=True):
        found = changed(found, "cora", FAILS, DFA_GNN, seed, accuracy=accuracy)
    said = state(found, ACCURACY)
    assert [said[name(rule)].verdict for rule in RULES] == ["fails", "undecided", "diverged", "trains"]
    some = changed(found, "cora", FAILS, KAFT, SEEDS[0], lost=True)  # the other runs are as good as they were
    assert state(some, ACCURACY)["KAFT"].verdict == "undecided"
    assert state({k: r for k, r in found.items() if k[2] != KAFT}, ACCURACY)["KAFT"].verdict == "not on record"
    for method in (RECIPE, KAFT):
        trained = [d for d in DEPTHS if interval(accuracies(found, d, method))[0] > MAJORITY + 0.05]
        assert state(found, "deepest that trains")[name(method)].value == trained[-1]
        mean = np.mean(accuracies(found, trained[-1], method))
        assert state(found, "accuracy there")[name(method)].value.mean == pytest.approx(mean)


def test_lost_runs_break_lines_and_are_counted():
    found = changed(changed(make_grid(), "cora", 16, KAFT, lost=True), "cora", 8, DFA_GNN, gamma=None)
    found = {k: r for k, r in found.items() if k[1:3] != (FAILS, GRAPE)}
    ((rules, variants, gamma, matrix),) = plot(found)
    found_lines = drawn(rules, "accuracy KAFT"), drawn(rules, "accuracy GrAPE"), drawn(gamma, "gamma DFA-GNN")
    assert [np.flatnonzero(np.isnan(own)).tolist() for own in found_lines] == [[3], [2], [1]]
    assert [t.get_text() for t in rules.texts if t.get_gid() == "lost"] == ["3 not on record", "3 diverged"]
    assert not [text for text in variants.texts if text.get_gid() == "lost"]
    assert {t.get_text() for t in matrix.texts if str(t.get_gid()).startswith("GrAPE")} == {"–"}
    gaps = ["DFA-GNN, L = 8: 3 without Γ", "GrAPE, L = 12: 3 not on record", "KAFT, L = 16: 3 diverged"]
    assert graph_rules.describe(list(found.values())).gaps == tuple(f"Cora, {gap}" for gap in gaps)
    assert describe(list(found.values())).gaps == tuple(f"Cora, {gap}" for gap in gaps[1:])


def test_mixed_settings_other_nets_and_records_without_a_majority_class_are_refused():
    first, *others = make_grid(seeds=(1,)).values()
    bare = make_run(graph_depth("paper").runs[0], accuracy=0.5, gamma=1.0, majority=None)
    cases = [([make_record(rule="bp")], "gcn"), ([bare], "majority class in the records of 'cora'")]
    for field, value, said in (
        ("epochs", 9, "epochs"),
        ("weight_decay", 0.1, "weight decay"),
        ("net_options", {"depth": 2, "width": 5, "gain": 1.0}, "width"),
        ("task_options", {"normalisation": "row"}, "version of the graph 'cora'"),
    ):
        cases.append(([replace(first, spec=replace(first.spec, **{field: value})), *others], said))
    for records, said in cases:
        with pytest.raises(CreditscopeError, match=said):
            plot_graph_depth(records)


@pytest.mark.parametrize("tasks", [("cora",), ("cora", "citeseer", "pubmed")])
def test_pages_are_clear_with_lost_runs_too(tasks):
    found = make_grid(tasks=tasks, depths=(2, 4, 6, 8, 10, 16, 20, 32), seeds=(1, 2))
    found = changed(found, "cora", 32, DFA, lost=True)
    for draw in (plot_graph_depth, plot_graph_rules):
        fig = draw([r for k, r in found.items() if k[1:3] != (10, GRAPE)])
        assert fig.get_size_inches()[1] < 10.5  # a page
        assert_clear(fig)
