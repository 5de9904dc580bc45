"""Which weights decay: all of them or those of the first layer, in every engine and after a stop, against NumPy."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from trained import record_runs, train_run

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, run_folder
from creditscope.record.store import WEIGHTS
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.stacked import stack_runs
from creditscope.train.training import StoppedError

GRAPH = {"task": "sbm", "task_options": {"nodes": 200}, "net": "gcn", "net_options": {"depth": 3, "width": 8}}
DIGITS = {"task": "digits", "net": "resmlp", "net_options": {"depth": 1, "width": 8}, "batch": 700, "eval_rows": 32}


def spec_of(setting: dict, **others) -> RunSpec:
    fields = {"optimiser": "adam", "lr": 0.01, "schedule": "constant", "weight_decay": 0.1, "epochs": 3}
    fields |= {"tier": "quick", "snapshot_every": 0, "decay_on": "first"}
    return plan_run(rule="bp", **setting, **{**fields, **others})


def adam(w: np.ndarray, g: np.ndarray, decay: float, *, lr: float, decoupled: bool) -> np.ndarray:
    """One first step of Adam: the update is lr·g/(|g| + ε) of the gradient with its L2 term."""
    if decoupled:
        return w * (1 - lr * decay) - lr * g / (np.abs(g) + 1e-8)
    g = g + decay * w
    return w - lr * g / (np.abs(g) + 1e-8)


@pytest.mark.parametrize("setting", [GRAPH, DIGITS], ids=["gcn", "resmlp"])
@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("decay_on", ["all", "first"])
def test_the_first_step_matches_numpy(setting, optimiser, decay_on):
    spec = spec_of(setting, optimiser=optimiser, decay_on=decay_on, precision="float64", epochs=1)
    run = build_run(spec)
    first = set(run.application.anatomy.stages[0])
    assert first == ({"layers.0.conv.linear.weight"} if setting is GRAPH else {"stem.weight", "stem.bias"})
    before = {name: p.detach().numpy().copy() for name, p in run.trained.items()}
    plan = run.data.plan_epoch(spec.seed, 0)
    run.train_step(run.data.train_batch(*(told[0] for told in plan)))
    for name, p in run.trained.items():
        decay = spec.weight_decay if decay_on == "all" or name in first else 0.0
        g = p.grad.numpy()
        if optimiser == "sgd":
            wanted = before[name] - spec.lr * (g + decay * before[name])
        else:
            wanted = adam(before[name], g, decay, lr=spec.lr, decoupled=optimiser == "adamw")
        np.testing.assert_allclose(p.detach(), wanted, rtol=1e-10, atol=1e-12)


def test_a_stack_decays_as_each_seed_alone():
    specs = [spec_of(GRAPH, seed=seed, precision="float64") for seed in (1, 2)]
    stacked = stack_runs([build_run(spec) for spec in specs])
    assert [group["weight_decay"] for group in stacked.optimiser.param_groups] == [0.1, 0.0]
    train_run(stacked, audit=False)
    for place, spec in enumerate(specs):
        alone, everywhere = build_run(spec), build_run(replace(spec, decay_on="all"))
        for run in (alone, everywhere):
            train_run(run, audit=False)
        for name, tensor in alone.tensors().items():
            torch.testing.assert_close(stacked.tensors(place)[name], tensor, rtol=1e-9, atol=1e-12)
        assert not torch.allclose(everywhere.tensors()["head.linear.weight"], alone.tensors()["head.linear.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_stopped_run_goes_on_with_its_own_decay(tmp_path: Path, engine):
    specs = [spec_of(GRAPH, seed=seed, epochs=4) for seed in (1, 2)]
    record_runs(specs, tmp_path / "whole", engine=engine)
    calls = iter([False] * len(specs) + [True] * 99)
    with pytest.raises(StoppedError):
        record_runs(specs, tmp_path / "parts", engine=engine, should_stop=lambda: next(calls))
    record_runs(specs, tmp_path / "parts", engine=engine)
    for spec in specs:
        whole, parts = (load_file(run_folder(tmp_path / name, spec) / WEIGHTS) for name in ("whole", "parts"))
        for name, tensor in whole.items():
            assert torch.equal(parts[name], tensor), name


def test_other_values_are_refused():
    with pytest.raises(CreditscopeError, match="Expected decay_on to be one of all, first, but got 'last'"):
        spec_of(GRAPH, decay_on="last")
