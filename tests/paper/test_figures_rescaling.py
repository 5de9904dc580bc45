"""Study and figure `rescaling`: a change of units changes nothing but what has units, and the figure says so."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import make_record
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pages import assert_clear, texts

import creditscope as cs
from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import FIGURES, save_figure
from creditscope.paper.figures.rescaling import ALARM, MIXED, QUIET, plot_rescaling
from creditscope.paper.studies import collect
from creditscope.paper.studies._rescale import load_run, rescaled
from creditscope.paper.studies.rescaling import FACTORS, DerivedRecord, rescaling
from creditscope.record import Record, load_records
from creditscope.registry import STUDIES
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

pytestmark = pytest.mark.slow

SEEDS = (1, 2)


@pytest.fixture(scope="module")
def study_root(tmp_path_factory) -> Path:
    """Two seeds at the smallest scale, trained and measured."""
    root = tmp_path_factory.mktemp("rescaling")
    collect(rescaling("test", seeds=SEEDS), root, train=True, problems=[], jobs=1, device="cpu")
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
        paper = rescaling("paper")
        assert {(run["task"], run["net_options"]["width"], run["epochs"]) for run in paper.runs} == {
            ("cifar10", 256, 100)
        }
        with pytest.raises(CreditscopeError, match=r"Expected the name of a scale of the study, but got 'huge'.*paper"):
            rescaling("huge")

    def test_states_grow_and_gradients_shrink_in_proportion(self, study_root):
        for seed in SEEDS:
            row = {r.condition: r.last.taps for r in derived(study_root) if r.spec and r.spec.seed == seed}
            assert tuple(row) == FACTORS
            for c, taps in row.items():
                np.testing.assert_allclose(taps.h_norm, c * np.array(row[1.0].h_norm), rtol=1e-5)
                np.testing.assert_allclose(taps.g_norm, np.array(row[1.0].g_norm) / c, rtol=1e-2)

    def test_nothing_else_changes(self, study_root):
        for seed in SEEDS:
            row = [r.last for r in derived(study_root) if r.spec and r.spec.seed == seed]
            first = row[0]
            for last in row:
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
            (
                lambda lines: [lines[0].replace('"schema_version": ', '"schema_version": 1'), *lines[1:]],
                "schema version",
            ),
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
        collect(rescaling("test", seeds=SEEDS), study_root, train=True, problems=[], jobs=1, device="cpu")
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


def made(seed: int, c: float, **last) -> DerivedRecord:
    """A rescaled BP run: ‖h‖ = 10c, ‖g‖ = 0.1/c."""
    taps = {"h_norm": 10 * c, "g_norm": 0.1 / c, "g_noise": 1e-6, **last.pop("taps", {})}
    record = make_record(rule="bp", seed=seed, taps=taps, **{"accuracy": 0.7, **last})
    return DerivedRecord(record.spec, record.provenance, record.snapshots, None, c)


def family(seeds=(1, 2, 3), factors=(1.0, 1e3, 1e6), **last) -> list[Record]:
    frozen = [make_record(rule="bp", seed=seed, frozen=True, accuracy=0.4 + 0.001 * seed) for seed in seeds]
    return [*(made(seed, c, **last) for seed in seeds for c in factors), *frozen]


def panel(fig: Figure, letter: str) -> Axes:
    return next(ax for ax in fig.axes if ax.get_label() == letter)


def heights(fig: Figure, letter: str, gid: str) -> np.ndarray:
    return np.concatenate(
        [np.atleast_1d(line.get_ydata()) for line in panel(fig, letter).lines if line.get_gid() == gid]
    )


def marks(fig: Figure, row: int) -> list[tuple[str, str]]:
    return [(str(m.get_marker()), str(m.get_color())) for m in panel(fig, "C").lines if m.get_gid() == f"row {row}"]


class TestFigure:
    def test_is_registered(self):
        assert FIGURES.get("rescaling") is plot_rescaling
        assert "change of units" in FIGURES.summary("rescaling")

    def test_curves_are_means_of_log10_over_seeds(self):
        records = [*family(seeds=(1,)), *family(seeds=(2,), taps={"g_norm": 1e-3})]
        fig = plot_rescaling(records)
        assert heights(fig, "A", "h") == pytest.approx([10, 1e4, 1e7])
        assert heights(fig, "A", "g") == pytest.approx(np.sqrt([0.1 * 1e-3, 1e-4 * 1e-3, 1e-7 * 1e-3]))
        assert heights(fig, "B", "accuracy") == pytest.approx([0.7] * 3)
        assert heights(fig, "B", "g_noise") == pytest.approx([1e-6] * 3)
        assert heights(fig, "B", "noise limit") == pytest.approx([0.1, 0.1])
        assert panel(fig, "A").get_ylim()[0] < PUBLISHED_FLOOR

    def test_captions_follow_the_data(self):
        said = texts(plot_rescaling(family()))
        assert "‖h₄‖ goes with c to the power 1.00, ‖g₄‖ to the power −1.00" in said
        assert "floor is crossed for all 3 seeds from c = 10⁶ on" in said
        assert "accuracy does not change" in said
        assert "Rounding noise is under its limit at every c: at most 10⁻⁶" in said
        assert "passes the net at c = 1 and fails it from c = 10⁶ on" in said
        assert "Our verdict is the same at every c: trustworthy" in said

    def test_what_is_not_so_is_not_said(self):
        high = texts(plot_rescaling(family(taps={"g_norm": 1.0})))
        assert "The published floor is not crossed" in high
        assert "‖g₄‖ to the power 0.00" in high
        assert "says the same at every c (0 of 3 seeds under it)" in high
        noisy = texts(plot_rescaling(family(taps={"g_noise": 0.5})))
        assert "Rounding noise is not under its limit" in noisy
        assert "the same at every c: walk back (CS002)" in noisy
        worse = [made(s, c, accuracy=0.7 - 0.1 * (c > 1)) for s in (1, 2, 3) for c in (1.0, 1e6)]
        assert "accuracy changes by at most 10.00 pp" in texts(plot_rescaling(worse))

    def test_marks_of_the_verdicts(self):
        fig = plot_rescaling(family())
        assert marks(fig, 0) == [QUIET, QUIET, ALARM]
        assert marks(fig, 1) == marks(fig, 2) == marks(fig, 3) == [QUIET] * 3
        assert "some seeds" not in texts(fig)
        mixed = [r for r in family() if not (isinstance(r, DerivedRecord) and r.spec.seed == 1)]
        mixed += [made(1, c, taps={"g_norm": 1e-9}) for c in (1.0, 1e3, 1e6)]
        assert marks(plot_rescaling(mixed), 0) == [MIXED, MIXED, ALARM]
        assert "some seeds" in texts(plot_rescaling(mixed))

    def test_without_frozen_baselines_the_verdict_is_open_and_that_is_said(self):
        fig = plot_rescaling([r for r in family() if isinstance(r, DerivedRecord)])
        assert marks(fig, 3) == [MIXED] * 3
        assert "Use of depth is not judged: no frozen baseline on record" in texts(fig)
        assert "not measured (CS004" in texts(fig)

    def test_one_seed_and_seeds_that_lack_a_factor(self):
        said = texts(plot_rescaling([*family(seeds=(1,)), made(9, 1.0)]))
        assert "seed 1 (n = 1)" in said
        assert "One seed, so no bars" in said
        assert "Left out, as not measured at every c: seed 9." in said

    def test_refusals(self):
        with pytest.raises(CreditscopeError, match="Expected runs measured under rescaling, but got none among 1"):
            plot_rescaling([make_record(rule="bp")])
        other = made(4, 1.0, lr=0.1)
        with pytest.raises(CreditscopeError, match=r"Expected records of one setting, but they differ in lr"):
            plot_rescaling([*family(), other])

    def test_the_floor_is_labelled_with_its_rows(self):
        assert "N = 128 rows" in texts(plot_rescaling(family()))

    def test_real_measurements_are_drawn_without_torch(self, study_root, tmp_path):
        code = f"""
import sys
from pathlib import Path
from creditscope.paper.figures import FIGURES, save_figure
from creditscope.paper.studies import collect
from creditscope.paper.studies.rescaling import rescaling
records = collect(rescaling("test", seeds={SEEDS}), Path({str(study_root)!r}), train=False, problems=[])
paths = save_figure(FIGURES.get("rescaling")(records), {str(tmp_path)!r}, "rescaling")
assert all(path.stat().st_size > 10_000 for path in paths)
assert "torch" not in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_no_text_leaves_the_page_or_covers_another(self, tmp_path):
        fig = plot_rescaling(family(factors=FACTORS))
        save_figure(fig, tmp_path, "rescaling")
        assert_clear(fig)
