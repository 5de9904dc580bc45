"""On a CUDA device: the same numbers as on the CPU, and no wait for the device but the one transfer."""

import numpy as np
import pytest
import torch

from creditscope.measure import snapshot as snapshot_module
from creditscope.measure.observation import observe
from creditscope.measure.snapshot import take_snapshot
from creditscope.tasks import ImageSettings, Task
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.training import train_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TINY = {"task": "digits", "net_options": {"depth": 2, "width": 16}, "epochs": 2, "eval_rows": 64}
GRAPH = {"task": "sbm", "net": "gcn", "net_options": {"depth": 3, "width": 8, "dropout": 0.3}, "epochs": 3}
STUDENT = {"task": "teacher", "net": "student", "net_options": {"depth": 2, "width": 16}, "epochs": 1, "eval_rows": 64}
IMAGES = {"task": "cifar10", "net": "vit", "net_options": {"depth": 2, "width": 16}, "epochs": 2, "batch": 16}


def image_task() -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(64, 3, 8, 8), dtype=np.uint8), rng.integers(4, size=64)
    return Task("toy", x, y, x, y, 4, ImageSettings(mean=(0.5,) * 3, std=(0.2,) * 3))


@pytest.mark.parametrize("setting", [TINY, GRAPH, STUDENT, IMAGES], ids=["resmlp", "gcn", "student", "vit"])
@pytest.mark.parametrize("rule", ["bp", "fa", "block_fa", "dfa"])
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
def test_nothing_waits_for_the_device_but_the_one_transfer(rule, monkeypatch):
    run = build_run(plan_run(rule=rule, **TINY), device=torch.device("cuda"))
    x, y = run.data.x_test[:64], run.data.y_test[:64]
    take_snapshot(observe(run.net, run.application.applied, x, y, noise=True), run.facts, epoch=0)  # warm
    original = snapshot_module.to_host

    def allowed(groups):
        torch.cuda.set_sync_debug_mode("default")
        return original(groups)

    monkeypatch.setattr(snapshot_module, "to_host", allowed)
    torch.cuda.set_sync_debug_mode("error")
    try:
        taken = take_snapshot(observe(run.net, run.application.applied, x, y, noise=True), run.facts, epoch=0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert taken.taps.rows_used == (64, 64, 64)
