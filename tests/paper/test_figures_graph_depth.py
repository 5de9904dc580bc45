"""Study and figure `graph_depth`: which runs, which numbers, and that captions and tables follow the data."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from builders import make_record, write_record
from graph_grids import (
    DEPTHS,
    FAILS,
    KAFT,
    LABELS,
    MAJORITY,
    RECIPE,
    SEEDS,
    accuracies,
    changed,
    drawn,
    make_grid,
    make_run,
    panel,
    said_in,
    words,
)
from pages import assert_clear, texts
from scipy import stats

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import FIGURES, save_figure
from creditscope.paper.figures.graph_depth import describe, plot_graph_depth
from creditscope.paper.studies import collect, find_missing
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, RULES, SQRT2, Method, graph_depth, method_of
from creditscope.registry import STUDIES
from creditscope.train.plan import plan_run

pytestmark = pytest.mark.slow


class TestStudy:
    def test_its_runs(self):
        runs = graph_depth("paper").runs
        assert len(runs) == 3 * 8 * 12 * 5
        assert {run["task"] for run in runs} == {"cora", "citeseer", "pubmed"}
        assert {run["net_options"]["depth"] for run in runs} == {2, 4, 6, 8, 10, 16, 20, 32}
        bp = {(m.gain, m.residual, m.decay) for m in BP_VARIANTS}
        starts = ((1.0, False), (SQRT2, False), (2.0, False), (1.0, True))
        assert bp == {(gain, residual, decay) for gain, residual in starts for decay in (True, False)}
        assert [m.rule for m in RULES] == ["dfa", "dfa_gnn", "grape", "kaft"]
        assert {run["task"] for run in graph_depth().runs} == {"sbm"}

    def test_every_run_can_be_planned_and_is_found_again(self):
        study = graph_depth("test", seeds=(1,), depths=(3,))
        specs = [plan_run(**wanted) for wanted in study.runs]
        assert len({spec.digest() for spec in specs}) == len(METHODS) == 12
        assert [method_of(spec) for spec in specs] == list(METHODS)
        records = [make_record(**vars(spec)) for spec in specs]
        assert find_missing(study, records) == []
        for i in range(len(records)):
            assert find_missing(study, records[:i] + records[i + 1 :]) == [study.runs[i]]

    def test_another_net_or_graph_is_not_taken_for_it(self):
        study = graph_depth("test", seeds=(1,), depths=(3,), methods=(METHODS[0],))
        (wanted,) = study.runs
        for name, change in (
            ("net_options", {"norm": "pair"}),
            ("net_options", {"propagate": False}),
            ("net_options", {"residual": True}),
            ("task_options", {"normalisation": "row"}),
        ):
            spec = plan_run(**{**wanted, name: {**wanted[name], **change}})
            assert find_missing(study, [make_record(**vars(spec))]) == [wanted]

    def test_it_is_trained_and_drawn(self, tmp_path):
        chosen = (BP_VARIANTS[0], BP_VARIANTS[-1], *RULES[:2])
        study = graph_depth("test", seeds=(1,), depths=(3,), methods=chosen)
        problems: list[str] = []
        records = collect(study, tmp_path, train=True, problems=problems, jobs=1, device="cpu")
        assert (len(records), problems) == (4, [])
        fig = plot_graph_depth(records)
        for record in records:
            assert record.spec is not None
            name = ", ".join([record.facts.rule.label, *_changes(method_of(record.spec))])
            kind = "variants" if record.spec.rule == "bp" else "rules"
            assert drawn(panel(fig, "sbm", kind), f"accuracy {name}") == [record.last.accuracy]
        assert "seed 1 (n = 1)" in texts(fig)


def _changes(method: Method) -> list[str]:
    gain = {1.0: [], SQRT2: ["gain √2"], 2.0: ["gain 2"]}[method.gain]
    return gain + ["residual"] * method.residual + ["no decay"] * (not method.decay)


class TestFigure:
    def test_is_registered(self):
        assert FIGURES.get("graph_depth") is plot_graph_depth
        assert "alignment over depth" in FIGURES.summary("graph_depth")

    def test_means_are_those_of_the_records(self):
        found = make_grid(seeds=(1, 2))
        fig = plot_graph_depth(list(found.values()))
        for task in ("cora", "citeseer"):
            means = {}
            for method in METHODS:
                name = ", ".join([LABELS[method.rule], *_changes(method)])
                means[method] = [np.mean([found[task, d, method, s].last.accuracy for s in (1, 2)]) for d in DEPTHS]
                kind = "variants" if method.rule == "bp" else "rules"
                assert drawn(panel(fig, task, kind), f"accuracy {name}") == pytest.approx(means[method])
            assert drawn(panel(fig, task, "rules"), "accuracy BP") == pytest.approx(means[RECIPE])
            assert drawn(panel(fig, task, "gamma"), "gamma KAFT") == pytest.approx([0.875, 0.755, 0.675, 0.595])
            assert drawn(panel(fig, task, "gamma"), "gamma BP") == [1, 1, 1, 1]
            assert drawn(panel(fig, task, "rules"), "best_constant")[0] == MAJORITY
            (span,) = [c for c in panel(fig, task, "rules").collections if c.get_gid() == "other BP"]
            others = [means[m] for m in BP_VARIANTS[1:]]
            edges = np.ravel([np.min(others, axis=0), np.max(others, axis=0)])
            assert np.isclose(span.get_paths()[0].vertices[:, 1][:, None], edges).any(axis=0).all()

    def test_graphs_stand_in_order_under_their_names(self):
        fig = plot_graph_depth(list(make_grid(tasks=("pubmed", "citeseer", "cora"), depths=(2,), seeds=(1,)).values()))
        tops = [ax for ax in fig.axes if ax.get_label().endswith("rules")]
        tops.sort(key=lambda ax: ax.get_position().x0)
        assert [ax.get_label() for ax in tops] == ["cora rules", "citeseer rules", "pubmed rules"]
        titles = {t.get_text(): t.get_position()[0] for t in fig.texts if t.get_weight() == "bold"}
        assert sorted(titles, key=titles.__getitem__) == ["A   Cora", "B   CiteSeer", "C   PubMed"]

    def test_a_changed_record_changes_line_matrix_caption_and_table(self):
        found = make_grid()
        before, after = list(found.values()), changed(found, "cora", FAILS, KAFT, accuracy=0.777)
        old, new = plot_graph_depth(before), plot_graph_depth(after)
        gid = "accuracy KAFT"
        assert drawn(panel(new, "cora", "rules"), gid)[DEPTHS.index(FAILS)] == pytest.approx(0.777)
        assert drawn(panel(new, "citeseer", "rules"), gid) == drawn(panel(old, "citeseer", "rules"), gid)
        wanted = round(100 * (0.777 - float(np.mean(accuracies(FAILS, RECIPE)))))
        assert said_in(panel(new, "cora", "matrix"), "kaft BP").replace("−", "-") == f"{wanted:+d}"
        assert said_in(panel(old, "cora", "matrix"), "kaft BP") != said_in(panel(new, "cora", "matrix"), "kaft BP")
        assert f"KAFT ({words(accuracies(FAILS, KAFT))})" in texts(old)
        assert "KAFT (.78 ± 0)" in texts(new)
        assert "0.777" in describe(after)
        assert "0.777" not in describe(before)

    def test_intervals_are_t_intervals_over_seeds(self):
        found = make_grid(tasks=("cora",))
        ax = panel(plot_graph_depth(list(found.values())), "cora", "rules")
        values = [found["cora", 8, RULES[0], seed].last.accuracy for seed in SEEDS]
        low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
        spans = [tuple(path.vertices[:, 1]) for bars in ax.collections for path in bars.get_paths()]
        assert any(np.allclose(span, (low, high)) for span in spans if len(span) == 2)


class TestRecords:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"epochs": 9}, r"Expected records of one setting, but they differ in epochs \(9, 100\)"),
            ({"weight_decay": 0.1}, "Expected one weight decay beside none, but got 0.0005 and 0.1"),
            ({"net_options": {"depth": 2, "width": 5, "gain": 1.0}}, "Expected nets that differ in depth, gain and"),
            ({"task_options": {"normalisation": "row"}}, "Expected one version of the graph 'cora'"),
        ],
    )
    def test_mixed_settings_are_refused(self, change, message):
        first, *others = make_grid(tasks=("cora",), seeds=(1,)).values()
        assert first.spec is not None
        odd = replace(first, spec=replace(first.spec, **change))
        with pytest.raises(CreditscopeError, match=message):
            plot_graph_depth([odd, *others])

    def test_the_commands_print_the_tables_without_torch(self, tmp_path):
        for name in ("graph_depth", "bottleneck_controls"):
            for wanted in STUDIES.get(name)("test", seeds=(42,)).runs:
                write_record(tmp_path, make_run(wanted, accuracy=0.456, gamma=0.5, data_version="sbm-1"))
        code = f"""
import sys
from creditscope.cli import main
for name in ("graph_depth", "bottleneck_controls"):
    main(["figure", name, "--records", {str(tmp_path)!r}, "--out", {str(tmp_path)!r}, "--no-train", "--scale", "test"])
assert "torch" not in sys.modules
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert re.search(r"BP, gain √2, no decay +0.456", done.stdout)
        assert re.search(r"decay on the first layer only +\.46", done.stdout)
        assert done.stdout.count("wrote ") == 4
        assert "24 of 48 runs are not on record" in done.stdout

    def test_nothing_to_draw_is_refused(self):
        with pytest.raises(CreditscopeError, match="Expected records of GCNs by rule and depth, but got none among 1"):
            plot_graph_depth([make_record(rule="bp")])

    @pytest.mark.parametrize("tasks", [("cora",), ("cora", "citeseer", "pubmed")])
    def test_no_text_leaves_the_page_or_covers_another(self, tasks, tmp_path):
        found = make_grid(tasks=tasks, depths=(2, 4, 6, 8, 10, 16, 20, 32), seeds=(1, 2))
        fig = plot_graph_depth([r for k, r in found.items() if k[1:3] != (10, RULES[2])])
        if len(tasks) == 1:
            assert len(save_figure(fig, tmp_path, "graph_depth")) == 2
        assert fig.get_size_inches()[1] < 10.5  # a page
        assert_clear(fig)
