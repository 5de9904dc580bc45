"""Study and figure `graph_depth`: which runs, which numbers, and that captions and tables follow the data."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot, write_record
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pages import assert_clear, texts
from scipy import stats

from creditscope.errors import CreditscopeError
from creditscope.figures import FIGURES, save_figure
from creditscope.figures.graph_depth import describe, plot_graph_depth
from creditscope.record import Record, RuleFacts
from creditscope.registry import STUDIES
from creditscope.studies import collect, find_missing
from creditscope.studies.graph_depth import BP_VARIANTS, METHODS, RULES, SQRT2, Method, graph_depth, method_of
from creditscope.train.plan import plan_run

SEEDS = (1, 2, 3)
DEPTHS = (2, 8, 16)
LABELS = {"bp": "BP", "dfa": "DFA", "dfa_gnn": "DFA-GNN", "grape": "GrAPE", "kaft": "KAFT"}
SLOPES = {"bp": 0.04, "dfa": 0.03, "dfa_gnn": 0.025, "grape": 0.02, "kaft": 0.01}
Key = tuple[str, int, Method, int]


def accuracy_of(task: str, depth: int, method: Method, seed: int) -> float:
    """Falls with depth, less so with gain, a residual or no decay; seeds scatter differently for each rule."""
    slope = SLOPES[method.rule] / (method.gain * (3 if method.residual else 1) * (1 if method.decay else 1.5))
    scatter = 0.01 * np.sin(seed * (2 + len(method.rule)))
    return 0.8 - slope * depth + scatter - 0.05 * (task == "citeseer")


def make_run(wanted: dict[str, Any], *, accuracy: float, gamma: float | None, **others: Any) -> Record:
    rule = RuleFacts(name=wanted["rule"], label=LABELS[wanted["rule"]])
    facts = {"rule": rule, "classes": 7, "chance": 1 / 7, "best_constant": 0.319}
    known = make_facts(**facts)
    snapshots = [make_snapshot(known, epoch=e, accuracy=accuracy, gamma=gamma) for e in (0, wanted["epochs"])]
    return make_record(**{**wanted, "facts": facts, "snapshots": snapshots, **others})


def make_grid(*, tasks=("cora", "citeseer"), depths=DEPTHS, seeds=SEEDS) -> dict[Key, Record]:
    """Records of every method by (task, depth, method, seed)."""
    found = {}
    for wanted in graph_depth("paper", tasks=tasks, depths=depths, seeds=seeds).runs:
        plain = make_run(wanted, accuracy=0.5, gamma=1.0)
        assert plain.spec is not None
        key = plain.spec.task, wanted["net_options"]["depth"], method_of(plain.spec), wanted["seed"]
        gamma = 1.0 if wanted["rule"] == "bp" else 0.9 - 0.02 * key[1] + 0.01 * key[3]
        found[key] = make_run(wanted, accuracy=accuracy_of(*key), gamma=gamma)
    return found


def changed(found: dict[Key, Record], *key: Any, **changes: Any) -> list[Record]:
    """The records, with last measures changed in those whose key starts so."""
    records = []
    for own, record in found.items():
        if own[: len(key)] == key:
            record = replace(record, snapshots=(record.snapshots[0], replace(record.last, **changes)))
        records.append(record)
    return records


def panel(fig: Figure, task: str, kind: str) -> Axes:
    return next(ax for ax in fig.axes if ax.get_label() == f"{task} {kind}")


def drawn(ax: Axes, gid: str) -> list[float]:
    (line,) = [line for line in ax.lines if line.get_gid() == gid]
    return [float(y) for y in np.asarray(line.get_ydata())]


def said_in(ax: Axes, gid: str) -> str:
    (text,) = [text for text in ax.texts if text.get_gid() == gid]
    return text.get_text()


def said_of(records: Sequence[Record]) -> str:
    """What is printed, on one line with plain spaces; its sentences are those drawn, too."""
    return " ".join(describe(records).split()).replace("\u00a0", " ")


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
            assert drawn(panel(fig, "sbm", "accuracy"), f"accuracy {name}") == [record.last.accuracy]
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
            for method in METHODS:
                name = ", ".join([LABELS[method.rule], *_changes(method)])
                means = [np.mean([found[task, d, method, s].last.accuracy for s in (1, 2)]) for d in DEPTHS]
                assert drawn(panel(fig, task, "accuracy"), f"accuracy {name}") == pytest.approx(means)
            assert drawn(panel(fig, task, "gamma"), "gamma KAFT") == pytest.approx([0.875, 0.755, 0.595])
            assert drawn(panel(fig, task, "gamma"), "gamma BP") == [1, 1, 1]
            assert drawn(panel(fig, task, "accuracy"), "best_constant")[0] == 0.319

    def test_a_changed_record_changes_line_matrix_caption_and_table(self):
        found = make_grid(depths=(8, 16))
        kaft = RULES[-1]
        before, after = list(found.values()), changed(found, "cora", 16, kaft, accuracy=0.123)
        old, new = plot_graph_depth(before), plot_graph_depth(after)
        gid = "accuracy KAFT"
        assert drawn(panel(new, "cora", "accuracy"), gid)[1] == pytest.approx(0.123)
        assert drawn(panel(new, "citeseer", "accuracy"), gid) == drawn(panel(old, "citeseer", "accuracy"), gid)
        deep = [np.mean([accuracy_of("cora", d, BP_VARIANTS[0], s) for d in (8, 16)]) for s in SEEDS]
        own = [(accuracy_of("cora", 8, kaft, s) + 0.123) / 2 for s in SEEDS]
        wanted = round(100 * float(np.mean(np.subtract(own, deep))))
        assert said_in(panel(new, "cora", "matrix"), "kaft BP").replace("−", "-") == f"{wanted:+d}"
        assert said_in(panel(old, "cora", "matrix"), "kaft BP") != said_in(panel(new, "cora", "matrix"), "kaft BP")
        assert texts(old) != texts(new)
        assert "0.123" in describe(after)
        assert "0.123" not in describe(before)

    def test_intervals_are_t_intervals_over_seeds(self):
        found = make_grid(tasks=("cora",))
        ax = panel(plot_graph_depth(list(found.values())), "cora", "accuracy")
        values = [found["cora", 8, RULES[0], seed].last.accuracy for seed in SEEDS]
        low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
        spans = [tuple(path.vertices[:, 1]) for bars in ax.collections for path in bars.get_paths()]
        assert any(np.allclose(span, (low, high)) for span in spans if len(span) == 2)

    def test_a_rule_is_compared_with_the_best_bp_in_pairs(self):
        found = make_grid(tasks=("cora",))
        said = said_of(list(found.values()))
        best = Method("bp", gain=1.0, residual=True, decay=False)  # the flattest slope of all
        means = [np.mean([accuracy_of("cora", depth, best, s) for s in SEEDS]) for depth in (8, 16)]
        assert f"Best BP: residual, no decay, {means[0]:.2f} at L = 8, {means[1]:.2f} at L = 16." in said
        for rule in RULES[:3]:
            sizes = []
            for depth in (8, 16):
                own, others = ([accuracy_of("cora", depth, m, s) for s in SEEDS] for m in (rule, best))
                low, high = stats.ttest_rel(own, others).confidence_interval(0.95)
                assert high < 0
                sizes.append(f"−{-50 * (low + high):.1f} ± {50 * (high - low):.1f}")
            assert f"{LABELS[rule.rule]} − best BP (n = 3): below at L = 8, 16 ({', '.join(sizes)})." in said

    def test_the_sentence_says_when_a_rule_wins_and_when_it_is_undecided(self):
        found = make_grid(tasks=("cora",), depths=(2, 16))
        for seed, accuracy in zip(SEEDS, (0.95, 0.951, 0.952), strict=True):
            found = dict(zip(found, changed(found, "cora", 16, RULES[0], seed, accuracy=accuracy), strict=True))
        for seed, accuracy in zip(SEEDS, (0.9, 0.2, 0.85), strict=True):
            found = dict(zip(found, changed(found, "cora", 16, RULES[1], seed, accuracy=accuracy), strict=True))
        said = said_of(list(found.values()))
        assert "DFA − best BP (n = 3): above at L = 16 (+" in said
        assert "DFA-GNN − best BP (n = 3): not told apart at L = 16 (" in said
        dfa = said.partition("DFA − best BP")[2].partition("DFA-GNN")[0]
        for change in ("above BP by the recipe (+", "gain √2 (+", "gain 2 (+", "residual (+", "no decay (+"):
            assert change in dfa
        assert "below" not in dfa
        grape = said.partition("GrAPE − best BP")[2].partition("KAFT")[0]
        assert "above BP by the recipe (+" in grape
        assert "; below residual (−" in grape

    def test_what_is_printed_is_drawn(self):
        found = list(make_grid(tasks=("cora",), depths=(8, 16)).values())
        printed, drawn = said_of(found), texts(plot_graph_depth(found))
        for start in ("Best BP:", "DFA − best BP", "KAFT − best BP", "GCN, hidden width"):
            sentence = printed[printed.index(start) :].partition(").")[0]
            assert sentence in drawn

    def test_missing_runs_are_marked(self):
        found = make_grid(tasks=("cora",))
        kept = [r for k, r in found.items() if k[1:3] != (8, RULES[2])]
        fig = plot_graph_depth(kept)
        ax = panel(fig, "cora", "accuracy")
        assert np.isnan(drawn(ax, "accuracy GrAPE")).tolist() == [False, True, False]
        assert [text.get_text() for text in ax.texts if text.get_gid() == "gap"] == ["1 of 12 not on record"]
        said = texts(fig)
        assert "cora: 3 runs not on record or not complete." in said
        assert "GrAPE − best BP (n = 3): below at L = 16 (" in said
        assert said_in(panel(fig, "cora", "matrix"), "grape BP") == "–"

    def test_a_rule_without_runs_is_said(self):
        said = said_of([r for k, r in make_grid(tasks=("cora",)).items() if k[2] != RULES[3]])
        assert "nothing of kaft" in said
        assert "kaft: nothing to compare." in said

    def test_diverged_runs_are_said(self):
        found = make_grid(tasks=("cora",))
        records = [
            replace(r, provenance=replace(r.provenance, status="diverged", diverged_epoch=3)) if k[2] == RULES[0] else r
            for k, r in found.items()
        ]
        assert "cora: 9 runs diverged; nothing of DFA." in said_of(records)

    def test_missing_alignment_is_said_and_breaks_the_line(self):
        fig = plot_graph_depth(changed(make_grid(tasks=("cora",)), "cora", 16, RULES[1], gamma=None))
        assert "cora: 3 runs without Γ." in texts(fig)
        assert np.isnan(drawn(panel(fig, "cora", "gamma"), "gamma DFA-GNN")[2])

    def test_the_recipe_is_read_from_the_specs(self):
        said = said_of(list(make_grid(tasks=("cora",)).values()))
        assert "hidden width 64, Adam, lr 0.01 (constant), decay 0.0005 on all layers (an L2 term" in said
        assert "100 epochs, float32, seeds 1, 2, 3 (n = 3)" in said

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
        assert len(save_figure(fig, tmp_path, "graph_depth")) == 2
        assert fig.get_size_inches()[1] < 10.5  # a page
        assert_clear(fig)
