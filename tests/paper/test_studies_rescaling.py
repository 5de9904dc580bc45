"""Study `rescaling`: a change of units changes nothing but what has units."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.paper.studies import collect
from creditscope.paper.studies._rescale import load_run, rescaled
from creditscope.paper.studies.rescaling import FACTORS, DerivedRecord, rescaling
from creditscope.record import load_records
from creditscope.registry import STUDIES
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

pytestmark = pytest.mark.slow

SEEDS = (1, 2)


@pytest.fixture(scope="module")
def study_root(tmp_path_factory) -> Path:
    """Two seeds at the smallest scale, trained and measured."""
    root = tmp_path_factory.mktemp("rescaling")
    collect(rescaling("test", seeds=SEEDS), root, train=True, problems=[], slots=1, device="cpu")
    return root


def derived(root: Path, **options) -> list[DerivedRecord]:
    problems = options.pop("problems", [])
    found = collect(rescaling("test", seeds=SEEDS), root, train=False, problems=problems, **options)
    return [r for r in found if isinstance(r, DerivedRecord)]


def the_file(root: Path, seed: int) -> Path:
    (path,) = (root / "rescaling").glob(f"*-s{seed}-*.jsonl")
    return path


class TestStudy:
    def test_its_runs_are_those_of_the_demo(self):
        assert all(run in STUDIES.get("demo")().runs for run in rescaling().runs)

    def test_scales(self):
        runs = rescaling("paper").runs
        assert {(run["task"], run["net_options"]["width"], run["epochs"]) for run in runs} == {("cifar10", 256, 100)}
        with pytest.raises(CreditscopeError, match=r"Expected the name of a scale of the study, but got 'huge'.*paper"):
            rescaling("huge")

    def test_states_grow_and_gradients_shrink_in_proportion_and_nothing_else_changes(self, study_root):
        for seed in SEEDS:
            row = {r.condition: r.last for r in derived(study_root) if r.spec and r.spec.seed == seed}
            first = row[1.0]
            assert tuple(row) == FACTORS
            for c, last in row.items():
                np.testing.assert_allclose(last.taps.h_norm, c * np.array(first.taps.h_norm), rtol=1e-5)
                np.testing.assert_allclose(last.taps.g_norm, np.array(first.taps.g_norm) / c, rtol=1e-2)
                assert last.accuracy == pytest.approx(first.accuracy, abs=0.002)
                assert last.loss == pytest.approx(first.loss, rel=1e-3)
                np.testing.assert_allclose(last.taps.g_rel, first.taps.g_rel, rtol=1e-2)
                np.testing.assert_allclose(last.taps.cos, 1.0, rtol=1e-5)
                assert max(last.taps.g_noise) < 1e-4

    def test_at_c_1_it_is_the_last_snapshot_of_the_run(self, study_root):
        runs = {r.spec.seed: r.last for r in load_records(study_root) if r.spec and not r.spec.frozen}
        for record in derived(study_root):
            if record.condition == 1.0:
                own, last = runs[record.spec.seed], record.last
                assert (own.accuracy, own.loss, own.correct) == (last.accuracy, last.loss, last.correct)
                measured = {name: values for name, values in vars(last.taps).items() if values and name != "g_noise"}
                assert measured == {name: getattr(own.taps, name) for name in measured}
                assert len(measured) > 10

    def test_an_audit_of_the_folder_does_not_see_them(self, study_root):
        problems: list[str] = []
        records = load_records(study_root, problems=problems)
        assert (len(records), problems) == (4, [])
        (method,) = cs.audit(study_root).methods
        assert method.seeds == SEEDS

    def test_the_file_says_what_was_measured_and_by_what(self, study_root):
        first, *lines = the_file(study_root, 1).read_text().splitlines()
        source = json.loads(first)
        assert source["study"] == "rescaling"
        assert source["run"] == the_file(study_root, 1).stem
        assert source["provenance"]["torch"] == torch.__version__
        assert [json.loads(line)["condition"] for line in lines] == list(FACTORS)

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda lines: lines[:-1], "measured under other conditions"),
            (lambda lines: [lines[0], "{broken"], "cannot be read"),
            (lambda lines: [], "cannot be read"),
            (
                lambda lines: [lines[0].replace('"weights": "', '"weights": "f'), *lines[1:]],
                "measured on other weights",
            ),
            (lambda lines: [lines[0].replace('_version": ', '_version": 1'), *lines[1:]], "schema version"),
        ],
    )
    def test_a_file_that_does_not_serve_is_named_and_measured_anew(self, study_root, change, why):
        path = the_file(study_root, 2)
        whole = path.read_text()
        path.write_text("\n".join(change(whole.splitlines())))
        problems: list[str] = []
        assert {r.spec.seed for r in derived(study_root, problems=problems)} == {1}
        assert len(problems) == 1
        assert f"Run {path.stem} is left out of study 'rescaling'" in problems[0]
        assert why in problems[0]
        collect(rescaling("test", seeds=SEEDS), study_root, train=True, problems=[], slots=1, device="cpu")
        assert path.read_text().splitlines()[1:] == whole.splitlines()[1:]

    def test_without_measurements_it_says_so(self, study_root, tmp_path):
        shutil.copytree(study_root, tmp_path / "copy", ignore=shutil.ignore_patterns("rescaling"))
        with pytest.raises(CreditscopeError, match=r"Expected measurements of study 'rescaling' .* not measured yet"):
            collect(rescaling("test", seeds=SEEDS), tmp_path / "copy", train=False, problems=[])


class TestRescale:
    def test_the_function_stays_and_the_weights_come_back(self, study_root):
        record = next(r for r in load_records(study_root) if r.spec and not r.spec.frozen)
        run = load_run(record, torch.device("cpu"))
        before = {name: p.detach().clone() for name, p in run.net.named_parameters()}
        x = run.data.snapshot_batch().inputs
        with torch.no_grad():
            plain = run.net(x)
            with rescaled(run.net, 1e6):
                torch.testing.assert_close(run.net.stem(x), 1e6 * torch.nn.functional.linear(
                    x, before["stem.weight"], before["stem.bias"]), rtol=1e-4, atol=1.0)  # fmt: skip
                torch.testing.assert_close(run.net(x), plain, rtol=1e-3, atol=1e-3)
        assert all(torch.equal(p, before[name]) for name, p in run.net.named_parameters())

    def test_the_weights_come_back_after_an_error(self):
        net = build_run(plan_run(net_options={"depth": 1, "width": 8})).net
        before = net.stem.weight.detach().clone()
        with pytest.raises(RuntimeError, match="stop"), rescaled(net, 10.0):
            raise RuntimeError("stop")
        assert torch.equal(net.stem.weight, before)

    def test_a_net_whose_function_would_change_is_refused(self):
        for options, said in (
            ({"net_options": {"terminal_norm": False}}, "but got ResMLP without a terminal LayerNorm"),
            ({"net": "student"}, "but got StudentNet"),
        ):
            net = build_run(plan_run(**options)).net
            with pytest.raises(CreditscopeError, match=said), rescaled(net, 10.0):
                pass
