"""On a CUDA device: the same numbers as on the CPU, and no wait for the device but the one transfer."""

import itertools
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from builders import run_python
from safetensors.torch import load_file
from torch import Tensor
from trained import record_runs, train_run

from creditscope.measure import snapshot as snapshot_module
from creditscope.measure.observation import observe
from creditscope.measure.snapshot import take_snapshots
from creditscope.record import RunSpec, Snapshot, read_record, run_folder
from creditscope.tasks import ImageSettings, Task
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.stacked import LEAD, LEAST_AHEAD, Pace, StackedRun, stack_runs
from creditscope.train.training import StoppedError

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # said if the first product of a process is one of a backward, whose thread has not met the device yet
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context"),
]

QUICK = {"net_options": {"depth": 2, "width": 16}, "epochs": 2, "tier": "quick"}
TINY = {**QUICK, "task": "digits", "eval_rows": 64}
STUDENT = {**TINY, "task": "teacher", "net": "student", "epochs": 1}
IMAGES = {**QUICK, "task": "cifar10", "net": "vit", "batch": 16}
SPARSE = {"depth": 3, "width": 8, "dropout": 0.3}
GRAPH = {"task": "sbm", "net": "gcn", "net_options": SPARSE, "epochs": 3, "tier": "quick"}


@contextmanager
def no_waiting():
    """Inside, whatever waits for the device raises."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def transfers(monkeypatch):
    """The seeds of every transfer to the host, which may wait for the device."""
    seen, original = [], snapshot_module.to_host

    def allowed(groups: list, seeds: int | None = None) -> list:
        torch.cuda.set_sync_debug_mode("default")
        seen.append(seeds)
        return original(groups, seeds)

    monkeypatch.setattr(snapshot_module, "to_host", allowed)
    return seen


def image_task() -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(64, 3, 8, 8), dtype=np.uint8), rng.integers(4, size=64)
    return Task("toy", x, y, x, y, 4, ImageSettings(mean=(0.5,) * 3, std=(0.2,) * 3))


@pytest.mark.parametrize(
    ("rule", "setting"),
    [
        *itertools.product(("bp", "fa", "block_fa", "dfa", "grape"), (TINY, GRAPH, STUDENT, IMAGES)),
        *itertools.product(("dfa_gnn", "kaft"), (GRAPH,)),
    ],
    ids=lambda v: v if isinstance(v, str) else v.get("net", "resmlp"),
)
def test_cuda_and_cpu_agree(rule, setting):
    ends = []
    for device in ("cpu", "cuda"):
        taken = []
        task = image_task() if setting is IMAGES else None
        run = build_run(plan_run(rule=rule, precision="float64", **setting), task, torch.device(device))
        train_run(run, on_snapshots=taken.extend)
        ends.append((run, taken[-1]))
    for (name, a), (_, b) in zip(ends[0][0].net.state_dict().items(), ends[1][0].net.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b.cpu(), rtol=1e-8, atol=1e-10, msg=name)
    np.testing.assert_allclose(ends[0][1].taps.cos, ends[1][1].taps.cos, rtol=1e-7)
    np.testing.assert_allclose(ends[0][1].taps.z, ends[1][1].taps.z, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("rule", ["bp", "fa", "block_fa", "dfa"])
def test_nothing_waits_for_the_device_but_the_one_transfer(rule, transfers):
    run = build_run(plan_run(rule=rule, **TINY), device=torch.device("cuda"))
    x, y = run.data.x_test[:64], run.data.y_test[:64]
    take_snapshots(observe(run.net, run.application.applied, x, y, noise=True), run.facts, epoch=0)  # warm
    transfers.clear()
    with no_waiting():
        (taken,) = take_snapshots(observe(run.net, run.application.applied, x, y, noise=True), run.facts, epoch=0)
    assert len(transfers) == 1
    assert taken.taps.rows_used == (64, 64, 64)


SETTINGS: dict[str, dict[str, Any]] = {
    "resmlp": TINY,
    "student": {**TINY, "net": "student"},
    "gcn": {**GRAPH, "epochs": 20, "snapshot_every": 10},
    "vit": {**IMAGES, "net_options": {"depth": 2, "width": 16, "dropout": 0.2}, "epochs": 5, "snapshot_every": 0},
}
"""Twenty steps of every net."""
EVERY_NET = pytest.mark.parametrize("net", SETTINGS)
EVERY_RULE = pytest.mark.parametrize("rule", ["bp", "fa", "block_fa", "dfa"])


def specs_of(net: str, rule: str, **others: Any) -> list[RunSpec]:
    return [plan_run(rule=rule, seed=seed, **SETTINGS[net] | others) for seed in (1, 2, 3)]


def build(spec: RunSpec) -> Run:
    return build_run(spec, image_task() if spec.net == "vit" else None, torch.device("cuda"))


def stack(specs: Sequence[RunSpec]) -> StackedRun:
    return stack_runs([build(spec) for spec in specs])


def rounding_alone(spec: RunSpec, name: str) -> bool:
    """The key bias of attention, to which a softmax is blind: Adam makes steps of the rounding in its gradient."""
    return name.endswith("attention.k.bias") and spec.optimiser != "sgd"


def check_against_the_loop(specs: Sequence[RunSpec], tolerance: float) -> StackedRun:
    """Every weight tensor of every seed to a relative tolerance, and the last snapshot to ten times that."""
    run, taken = stack(specs), []
    train_run(run, on_snapshots=taken.append)
    for seed, spec in enumerate(specs):
        alone, snapshots = build(spec), []
        train_run(alone, on_snapshots=snapshots.extend)
        found = run.tensors(seed)
        for name, wanted in alone.tensors().items():
            if not wanted.is_floating_point():
                assert torch.equal(found[name], wanted), name
            elif not rounding_alone(spec, name):
                far, size = (float(t.double().norm()) for t in (found[name] - wanted, wanted))
                assert far <= tolerance * size, f"{name}: {far / size:.1e}"
        assert len(taken) == len(snapshots)
        ours, theirs = taken[-1][seed], snapshots[-1]
        for name in ("cos", "g_norm", "h_norm", "null_sd", "ratio", "rank_a"):
            a, b = (np.array(getattr(s.taps, name), dtype=float) for s in (ours, theirs))
            np.testing.assert_allclose(a, b, rtol=10 * tolerance, atol=tolerance, err_msg=name)
        for name in ("loss", "train_loss", "step_error", "gamma"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=10 * tolerance), name
        assert (ours.epoch, ours.step, ours.rows_covered) == (theirs.epoch, theirs.step, theirs.rows_covered)
    return run


@EVERY_NET
@EVERY_RULE
def test_captured_steps_agree_with_the_loop_in_float32_after_20(net, rule):
    run = check_against_the_loop(specs_of(net, rule), 1e-4)
    assert run.spec.epochs * run.data.steps == 20
    assert run.engine == "captured"


@EVERY_NET
@EVERY_RULE
def test_stacked_steps_agree_with_the_loop_in_float64_after_3_epochs(net, rule):
    specs = specs_of(net, rule, precision="float64", epochs=3, snapshot_every=0)
    assert check_against_the_loop(specs, 1e-10).engine == "stacked"


@pytest.mark.parametrize(
    ("net", "rule", "others"),
    [
        ("resmlp", "dfa", {"penalty": 0.1, "credit_norm": "sample"}),
        ("resmlp", "block_fa", {"frozen": True, "credit_norm": "batch", "schedule": "constant"}),
        ("resmlp", "fa", {"optimiser": "adam", "penalty": 0.1}),
        ("gcn", "bp", {"optimiser": "adam", "task_options": {"normalisation": "row"}}),
        ("vit", "bp", {"optimiser": "sgd", "lr": 0.1}),
        ("vit", "fa", {"optimiser": "sgd", "lr": 0.01}),
        ("resmlp", "grape", {}),
        ("vit", "grape", {"optimiser": "sgd", "lr": 0.01}),
        ("gcn", "grape", {}),
        ("gcn", "dfa_gnn", {"task_options": {"normalisation": "row"}}),
        ("gcn", "kaft", {"rule_options": {"probes": 2}}),
    ],
    ids=str,
)
def test_captured_steps_agree_with_the_loop_whatever_the_recipe(net, rule, others):
    assert check_against_the_loop(specs_of(net, rule, **others), 1e-4).engine == "captured"


@pytest.mark.parametrize(("net", "rule"), [*((net, "fa") for net in SETTINGS), ("gcn", "kaft")])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_audited_and_unaudited_stacks_end_bit_identical(net, rule, precision):
    specs = specs_of(net, rule, precision=precision, snapshot_every=1, epochs=3)
    audited, plain = stack(specs), stack(specs)
    train_run(audited)
    train_run(plain, audit=False)
    for seed in range(len(specs)):
        others = plain.tensors(seed)
        for name, tensor in audited.tensors(seed).items():
            assert torch.equal(tensor, others[name]), name


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("keep_last", [False, True])
@pytest.mark.parametrize(("net", "rule"), [*((net, "dfa") for net in SETTINGS), ("gcn", "dfa_gnn"), ("gcn", "kaft")])
def test_no_step_waits_for_the_device(net, rule, keep_last, precision, monkeypatch):
    run = stack(specs_of(net, rule, precision=precision))
    run.train_epoch(0, keep_last=keep_last)  # captures
    name, calls = "_observed_step" if keep_last else "_advance", []
    original = getattr(StackedRun, name)

    def watched(self: StackedRun) -> Any:
        with no_waiting():
            calls.append(name)
            return original(self)

    # not around all of the epoch: what was drawn for it is copied from the host, once
    monkeypatch.setattr(StackedRun, name, watched)
    run.train_epoch(1, keep_last=keep_last)
    assert len(calls) == (1 if keep_last else run.data.steps)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@EVERY_NET
def test_the_snapshots_of_a_stack_are_one_transfer(net, transfers):
    run = stack(specs_of(net, "fa"))
    batch = run.data.snapshot_batch()
    _, last = run.train_epoch(0, keep_last=True)
    run.net.eval()

    def take() -> list[Snapshot]:
        seen = observe(run.net, run.application.applied, batch.inputs, batch.target, mask=batch.mask, noise=True)
        return take_snapshots(seen, run.facts, epoch=1, last_step=last)

    warm = take()
    transfers.clear()
    with no_waiting():
        taken = take()
    assert transfers == [3]
    assert [s.taps.rows_used for s in taken] == [s.taps.rows_used for s in warm]


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).double().norm() / wanted.double().norm())


def weights_of(root, spec: RunSpec) -> dict[str, Tensor]:
    return load_file(run_folder(root, spec) / "weights.safetensors")


@pytest.mark.parametrize("rule", ["fa", "dfa"])
def test_captured_runs_are_stopped_and_go_on(rule, tmp_path):
    specs = specs_of("resmlp", rule, epochs=4)
    asked, cuda = [], {"engine": "stacked", "device": torch.device("cuda")}
    with pytest.raises(StoppedError):
        record_runs(specs, tmp_path, should_stop=lambda: asked.append(1) or len(asked) >= 2, **cuda)
    assert set(record_runs(specs, tmp_path, **cuda).values()) == {"complete"}
    record_runs(specs, tmp_path / "whole", **cuda)
    for spec in specs:
        record, whole = (read_record(run_folder(root, spec)) for root in (tmp_path, tmp_path / "whole"))
        provenance = record.provenance
        assert (provenance.engine, provenance.stack, provenance.resumes) == ("captured", (1, 2, 3), 1)
        assert [s.epoch for s in record.snapshots] == [0, 1, 2, 3, 4]
        assert record.last.train_loss == pytest.approx(whole.last.train_loss, rel=1e-4)
        found = weights_of(tmp_path, spec)
        for name, wanted in weights_of(tmp_path / "whole", spec).items():
            assert relative(found[name], wanted) <= 1e-4, name


def test_what_the_captured_engine_began_the_loop_can_finish_and_the_other_way_round(tmp_path):
    (spec,) = specs_of("resmlp", "dfa", epochs=4)[:1]
    cuda = torch.device("cuda")
    record_runs([spec], tmp_path / "whole", device=cuda, engine="loop")
    wanted = weights_of(tmp_path / "whole", spec)
    for begun, ended, engine in (("stacked", "loop", "loop"), ("loop", "stacked", "captured")):
        asked, root = [], tmp_path / begun
        with pytest.raises(StoppedError):
            record_runs([spec], root, device=cuda, engine=begun, should_stop=lambda a=asked: a.append(1) or len(a) >= 2)
        assert record_runs([spec], root, device=cuda, engine=ended) == {spec.digest(): "complete"}
        assert read_record(run_folder(root, spec)).provenance.engine == engine
        for name, tensor in weights_of(root, spec).items():
            assert relative(tensor, wanted[name]) <= 1e-4, name


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0), reason="needs a device with TF32"
)
@pytest.mark.parametrize(("precision", "low", "high"), [("float32", 0.0, 2e-5), ("tf32", 2e-5, 1e-2)])
def test_convolutions_are_of_the_precision_that_is_asked_for(precision, low, high, tmp_path):
    net = {"net": "lenet", "net_options": {"width": 16, "padded": True}}
    specs = [plan_run(**{**TINY, **net}, task_options={"image": True}, precision=precision, seed=s) for s in (1, 2)]
    (outcomes,) = {*record_runs(specs, tmp_path, device=torch.device("cuda"), engine="stacked").values()}
    assert outcomes == "complete"
    for spec in specs:
        record = read_record(run_folder(tmp_path, spec))
        assert record.provenance.engine == "captured", record.provenance.note
        assert all(low < noise < high for noise in record.last.taps.g_noise[:2])


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0), reason="needs a device with TF32"
)
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_tf32_is_near_float32_and_is_put_back(engine, tmp_path):
    wide = {"net_options": {"depth": 2, "width": 128}, "optimiser": "sgd", "lr": 0.1, "epochs": 1, "noise": False}
    specs = {p: specs_of("resmlp", "bp", precision=p, **wide)[0] for p in ("float32", "tf32")}
    products, during = torch.backends.cuda.matmul, {}
    before = products.allow_tf32
    for precision, spec in specs.items():

        def heard(*_: Any, precision: str = precision) -> None:
            during[precision] = products.allow_tf32

        outcomes = record_runs([spec], tmp_path, device=torch.device("cuda"), engine=engine, on_epoch=heard)
        assert outcomes == {spec.digest(): "complete"}
        assert products.allow_tf32 == before
    assert during == {"float32": False, "tf32": True}
    full, rounded = (weights_of(tmp_path, spec) for spec in specs.values())
    assert any(not torch.equal(rounded[name], full[name]) for name in full)
    assert all(relative(rounded[name], full[name]) < 0.05 for name in full if full[name].ndim == 2)


def test_a_device_can_be_named_by_its_number(tmp_path):
    """In a process that has not used the device before."""
    code = """
import sys
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run
specs = [plan_run(task="digits", epochs=1, tier="quick", seed=seed) for seed in (1, 2)]
records = run_all(specs, sys.argv[1], engine="stacked", device="cuda:0", slots=1)
print(*(record.provenance.status for record in records))
"""
    assert run_python("-c", code, tmp_path).split() == ["complete"] * 2


def test_the_host_is_not_far_ahead_of_the_device():
    """A checkpoint waits for what the device was given: not for a whole epoch of dear steps."""
    pace, seconds = Pace(), 0.1
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(10**8)
    end.record()
    end.synchronize()
    cycles = int(10**8 * seconds * 1e3 / start.elapsed_time(end))
    for _ in range(30):
        torch.cuda._sleep(cycles)
        pace.keep()
    left = sum(not mark.query() for mark in pace.marks)
    assert LEAST_AHEAD <= left <= 1.5 * LEAD / seconds
