"""What the benchmarks rest on: settings that train, fits and peaks of memory, draws of seeds, faults."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import make_facts, make_family, make_record, make_snapshot, run_python

from creditscope.auditing import audit

CASES = "RESMLP", "VIT", "GCN", "SMALL", "MIDDLE"
SEEDS = tuple(range(1, 21))
resets_peaks = pytest.mark.skipif(sys.platform != "linux", reason="resident peaks can be reset on Linux alone")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_case_trains_one_step_stacked_and_plain(name, bench):
    cases = bench("cases")
    case = replace(getattr(cases, name), steps=1)
    task = case.task()
    stack = case.stack(2, "cpu", "dfa", task)
    loss, _ = stack.train_epoch(0, keep_last=False)
    cases.eager_step(case, task, "cpu")()
    assert (loss.shape, bool(loss.isfinite().all()), stack.data.steps) == ((2,), True, 1)
    assert {name for name, value in vars(cases).items() if isinstance(value, cases.Case)} == set(CASES)


class TestGraphs:
    @pytest.fixture
    def graphs(self, bench):
        return bench("graphs")

    def test_fit_finds_bytes_of_nodes_and_edges(self, graphs):
        rows = [
            {"nodes": nodes, "edges": edges, "step_mib": (5e6 + 1500 * nodes + 48 * edges) / 2**20}
            for nodes, edges in graphs.sizes(1_000_000)
        ]
        found = graphs.fit_bytes(graphs.larger_rows(rows, "step"), "step")
        np.testing.assert_allclose(found, [5e6, 1500, 48], rtol=1e-6)

    @resets_peaks
    def test_peak_is_that_of_the_work(self, graphs):
        memory = graphs.Memory("cpu")
        sizes = [memory.peak(lambda n=n: np.ones(n * 2**17)) / 2**20 for n in (200, 50)]
        assert sizes == pytest.approx([200, 50], abs=10)

    @pytest.mark.slow
    @resets_peaks
    def test_the_rule_of_thumb_holds(self, graphs, monkeypatch):
        sizes, size = {"DEPTH": 3, "WIDTH": 96, "FEATURES": 16}, (25_000, 150_000)
        for name, value in sizes.items():
            monkeypatch.setattr(graphs, name, value)
        peaks_of = f"graphs.prepare(*{size}, 'cpu', graphs.WORKS)[2]"
        code = f"import graphs, json; vars(graphs).update({sizes}); print(json.dumps({peaks_of}))"
        peaks = json.loads(run_python("-c", code, cwd=Path(graphs.__file__).parent))
        for work in graphs.WORKS:
            assert graphs.rule_of_thumb(work, *size) == pytest.approx(peaks[work], rel=0.25), work

    def test_sizes_without_room_are_left_out(self, graphs, monkeypatch):
        rows = [{"nodes": 1000, "edges": 5000, "quick_mib": 1.0}]
        monkeypatch.setattr(graphs, "free_bytes", lambda device: 100 * 2**20)
        assert graphs.fits(rows, "quick", 50_000, 250_000, "cpu")
        assert not graphs.fits(rows, "quick", 70_000, 350_000, "cpu")


class TestVerdicts:
    """Draws keep baselines of the same seeds, and more seeds make no verdict rarer."""

    @pytest.fixture
    def verdicts(self, bench):
        return bench("verdicts")

    @pytest.fixture
    def noisy(self):
        """DFA of twenty seeds whose taps differ, one of them with a block that overwrites the stream."""
        rng, facts = np.random.default_rng(0), make_facts()
        family = [r for r in make_family(seeds=SEEDS) if r.spec.rule != "dfa" or r.spec.frozen]
        for seed in SEEDS:
            cos, sizes = rng.normal(0.25, 0.08, 5).tolist(), rng.uniform(1, 3, 5).tolist()
            accuracy = float(rng.normal(0.55, 0.1))
            taps = {"cos": cos, "cos_F": [0.9 * c for c in cos], "rewind": accuracy - 0.05}
            taps["h_rms"] = (1, 1, 1, 90, 90) if seed == 7 else sizes
            family.append(make_record(seed=seed, snapshots=[make_snapshot(facts, accuracy=accuracy, taps=taps)]))
        return family

    def test_all_seeds_get_the_word_of_the_audit(self, verdicts, noisy):
        word = next(m.verdict.word for m in audit(noisy).methods if m.method == "DFA")
        assert verdicts.draw_verdicts(noisy, "DFA", len(SEEDS), draws=3)[word] == 1

    def test_baselines_are_those_of_the_drawn_seeds(self, verdicts):
        family = [r for r in make_family(seeds=range(1, 7)) if not (r.spec.seed == 6 and r.spec.frozen)]
        shares = verdicts.draw_verdicts(family, "DFA", 3)
        assert shares["trustworthy"] == pytest.approx(0.5, abs=0.1)  # 10 of the 20 triples have all baselines
        assert shares["trustworthy"] + shares["not measured"] == 1

    @pytest.mark.slow
    def test_more_seeds_make_trust_no_rarer(self, verdicts, noisy):
        few, some, many = (verdicts.draw_verdicts(noisy, "DFA", n)["trustworthy"] for n in (3, 5, 10))
        assert few < 1
        assert few <= some + 0.05
        assert some <= many + 0.05

    def test_too_few_seeds_are_refused(self, verdicts):
        with pytest.raises(ValueError, match="at least 10 seeds"):
            verdicts.draw_verdicts(make_family(), "DFA", 10)

    def test_the_setting_is_told_from_others(self, verdicts):
        default = verdicts.plan_run(**verdicts.SETTING)
        asked = ("task", "data_version", "task_options", "net_options", "epochs")
        plain = {name: getattr(default, name) for name in asked}
        there = [make_record(rule=rule, **plain) for rule in ("bp", "fa")]
        others = [make_record(**plain, lr=0.01), make_record(**plain, targets="random")]
        assert verdicts.of_setting([*there, *others]) == there


class TestMutations:
    @pytest.fixture
    def mutations(self, bench):
        return bench("mutations")

    def test_every_one_can_be_applied_and_names_tests_that_there_are(self, mutations):
        tests = Path(__file__).parent
        for mutation in mutations.MUTATIONS:
            compile(mutations.mutated(mutation, mutations.ROOT), mutation.file, "exec")
            for test in mutation.tests:
                file, *names = test.split("::")
                text = (tests / file).read_text()
                assert all(re.search(rf"(def|class) {name}\b", text) for name in names), test

    @pytest.mark.parametrize(("old", "times"), [("no such text", 0), ("import", 3)])
    def test_a_text_that_is_not_there_once_is_refused(self, mutations, tmp_path, old, times):
        file = tmp_path / mutations.PACKAGE / "a.py"
        file.parent.mkdir(parents=True)
        file.write_text("import a\nimport b\nimport c\n")
        with pytest.raises(ValueError, match=f"{times} times"):
            mutations.mutated(mutations.Mutation("", "a.py", old, "", []), tmp_path)
        once = mutations.Mutation("", "a.py", "b", "d", [])
        assert mutations.mutated(once, tmp_path) == "import a\nimport d\nimport c\n"

    @pytest.mark.slow
    def test_a_fault_is_noticed_and_a_change_that_is_none_is_not(self, mutations):
        fault = next(m for m in mutations.MUTATIONS if m.file == "record/pick.py")
        harmless = fault._replace(new=f"{fault.old}  # the same")
        unknown = fault._replace(tests=["record/test_pick.py::test_of_no_such_name"])
        with mutations.copied() as tree:
            before = (tree / mutations.PACKAGE / fault.file).read_bytes()
            assert [mutations.is_noticed(m, tree) for m in (fault, harmless, unknown)] == [True, False, False]
            assert (tree / mutations.PACKAGE / fault.file).read_bytes() == before
