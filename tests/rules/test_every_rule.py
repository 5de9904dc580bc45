"""What holds for every rule there is: stacked as alone, stopped as whole, measured or not, on whatever net it fits."""

import functools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from trained import record_runs, train_run

from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.losses import row_errors
from creditscope.measure.observation import observe
from creditscope.nets.gcn import GCN
from creditscope.record import RunSpec, run_folder
from creditscope.registry import RULES
from creditscope.rng import generator
from creditscope.rules import TapRule, WeightRule, apply_rule, make_rule, rule_class
from creditscope.taps import resolve_taps
from creditscope.tasks import ImageSettings, Task
from creditscope.testing import assert_rule
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.stacked import stack_runs
from creditscope.train.training import CHECKPOINT, StoppedError

BUILT_IN = tuple(name for name in RULES.names() if not RULES.source(name))
FOR_GRAPHS = tuple(name for name in BUILT_IN if getattr(rule_class(name), "needs_graph", False))
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ldrl", {"feedback": "learned"}),
    ("local", {"loss": "predsim"}),
    ("sign_fa", {"variant": "br"}),
    ("dni", {"hidden": 0}),
)
EVERY = [*((name, {}) for name in BUILT_IN), *VARIANTS]
EVERY_RULE = pytest.mark.parametrize(("rule", "options"), EVERY, ids=lambda given: str(given or ""))
SEEDS = (1, 2, 3)


@pytest.fixture(autouse=True)
def one_thread():
    """So that bits can be compared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spec_of(rule: str, options: dict[str, Any], net: str = "resmlp", **others: Any) -> RunSpec:
    """Four steps an epoch of a small net on digits or toy images (ViT); one on a graph for rules that ask for it."""
    given: dict[str, Any] = {"task": "digits", "batch": 350, "eval_rows": 32, "net_options": {"depth": 2, "width": 16}}
    if rule in FOR_GRAPHS:
        net, given = "gcn", {"task": "sbm", "net_options": {"depth": 3, "width": 8}}
    elif net == "vit":
        given |= {"task": "cifar10", "batch": 16}
    fields = {"epochs": 1, "tier": "quick", "noise": False, "optimiser": "sgd", "lr": 0.05, "snapshot_every": 0}
    return plan_run(net=net, rule=rule, rule_options=options, **given | fields | others)


@functools.cache
def toy_images() -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(64, 3, 8, 8), dtype=np.uint8), rng.integers(4, size=64)
    return Task("toy", x, y, x, y, 4, ImageSettings(mean=(0.5,) * 3, std=(0.2,) * 3))


def build(spec: RunSpec) -> Run:
    return build_run(spec, toy_images() if spec.net == "vit" else None)


@pytest.mark.slow
@pytest.mark.parametrize("net", ["resmlp", "vit"])
@EVERY_RULE
def test_seeds_in_a_stack_learn_as_they_do_alone(rule, options, net):
    """Over an epoch, in float64; weights, feedback, counters, moments."""
    spec = spec_of(rule, options, net, precision="float64")
    specs = [replace(spec, seed=seed) for seed in SEEDS]
    together = stack_runs([build(own) for own in specs])
    together.train_epoch(0, keep_last=False)
    for place, own in enumerate(specs):
        alone = build(own)
        before = {name: t.clone() for name, t in alone.tensors().items()}
        alone.train_epoch(0, keep_last=False)
        found, wanted = together.tensors(place), alone.tensors()
        assert found.keys() == wanted.keys()
        assert any(not torch.equal(t, before[name]) for name, t in wanted.items())
        for name, tensor in wanted.items():
            far = float((found[name] - tensor).double().norm())
            assert far <= 1e-10 * max(1.0, float(tensor.double().norm())), f"{name}: {far}"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["loop", "stacked"])
@EVERY_RULE
def test_a_run_that_was_stopped_ends_with_the_same_bytes(tmp_path, rule, options, engine):
    """Twice, under AdamW; what is learned is among the weights that are kept."""
    spec = spec_of(rule, options, epochs=3, snapshot_every=1, optimiser="adamw", lr=1e-3)
    specs = [replace(spec, seed=seed) for seed in SEEDS[: 1 if engine == "loop" else 2]]
    for _ in range(2):
        with pytest.raises(StoppedError):
            record_runs(specs, tmp_path / "stopped", engine=engine, should_stop=lambda: True)
        assert all((run_folder(tmp_path / "stopped", own) / CHECKPOINT).exists() for own in specs)
    for place in ("stopped", "whole"):
        assert set(record_runs(specs, tmp_path / place, engine=engine).values()) == {"complete"}
    for own in specs:
        for file in ("snapshots.jsonl", "weights.safetensors"):
            ours, theirs = (run_folder(tmp_path / place, own) / file for place in ("stopped", "whole"))
            assert ours.read_bytes() == theirs.read_bytes(), file
        assert_feedback_is_kept(run_folder(tmp_path / "whole", own), own)


def assert_feedback_is_kept(folder: Path, spec: RunSpec) -> None:
    """All of it, moved by learning where the rule learns."""
    fresh, saved = build(spec), load_file(folder / "weights.safetensors")
    assert saved.keys() == fresh.tensors().keys()
    own = {name: t for name, t in fresh.tensors().items() if name.split(".")[-1] == "feedback" or is_feedback(name)}
    if fresh.application.applied.rule.learns_feedback:
        assert any(not torch.equal(saved[name], t) for name, t in own.items())


def is_feedback(name: str) -> bool:
    return name.startswith("feedback.")


KEPT = {
    "ldrl": {"feedback.B.0", "feedback.B.1", "feedback.counter"},
    "dtp": {"feedback.G.0.0", "feedback.G.1.3", "feedback.moments.first.0.0", "feedback.counter"},
    "dni": {"feedback.M.0.0", "feedback.M.1.3", "feedback.moments.second.1.2", "feedback.moments.steps"},
    "local": {"feedback.heads.A.0", "feedback.heads.b.2", "feedback.moments.first.A.0", "feedback.moments.steps"},
    "state_bridge": {"feedback.G.0", "feedback.G.5", "feedback.moments.first.0"},
    "credit_bridge": {"feedback.V.0", "feedback.V.5", "feedback.mean.0", "feedback.moments.second.5"},
}


@EVERY_RULE
def test_feedback_has_names_that_can_be_read(rule, options):
    run = build(spec_of(rule, options))
    made, names = run.application.applied.rule, [*run.tensors()]
    found = [name for name in names if is_feedback(name) or name.endswith(".feedback")]
    assert bool(found) is made.needs_feedback or made.learns_feedback  # or a counter alone
    if isinstance(made, TapRule):
        assert all(re.fullmatch(r"feedback(\.[A-Za-z]\w*|\.\d+)+", name) for name in found), found
    else:
        layers = {name.removesuffix(".feedback") for name in found}
        assert all(isinstance(run.net.get_submodule(layer), nn.Linear) for layer in layers)
    assert not options or rule != "local" or "feedback.heads.C.0" in found
    assert options or KEPT.get(rule, set()) <= {*found}


@pytest.mark.slow
@EVERY_RULE
def test_a_run_ends_with_the_same_bits_whether_it_is_measured_or_not(rule, options):
    spec = spec_of(rule, options, epochs=2, snapshot_every=1, tier="standard", noise=True)
    ended, taken = [], []
    for audit in (True, False):
        run = build(spec)
        train_run(run, audit=audit, on_snapshots=taken.extend)
        ended.append(run.tensors())
    assert len(taken) == 3
    for name, tensor in ended[0].items():
        assert torch.equal(tensor, ended[1][name]), name


@pytest.mark.slow
@EVERY_RULE
def test_the_test_kit_finds_nothing(rule, options):
    """Vectors, tokens and images, or a graph; masks; noise; interacting rows."""
    assert_rule(make_rule(rule, options))


def shrinking_net() -> tuple[nn.Sequential, tuple[str, ...], Tensor]:
    """Maps of different sizes and channels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3, stride=2), nn.Flatten(), nn.Linear(12, 3))
        return net, ("0", "1"), torch.randn(6, 1, 6, 8)


def normed_net() -> tuple[nn.Sequential, tuple[str, ...], Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 8), nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), nn.Linear(8, 3))
        return net, ("0", "1"), torch.randn(6, 5)


ON_VECTORS_OR_IMAGES = [name for name in BUILT_IN if name not in FOR_GRAPHS]
PLACE_BY_PLACE = {"block_fa", "ldrl", "dtp", "state_bridge", "credit_bridge"}
RUNS_AGAIN = {
    "dni", "dtp", "ep", "fdfa", "forward_gradient", "grape", "ldrl", "pc", "pepita", "state_bridge",
}  # fmt: skip


@pytest.mark.parametrize("rule", ON_VECTORS_OR_IMAGES)
@pytest.mark.parametrize(
    ("make", "refused"), [(shrinking_net, PLACE_BY_PLACE), (normed_net, RUNS_AGAIN)], ids=["maps", "norm"]
)
def test_a_net_fits_or_is_refused_before_anything_is_trained(rule, make, refused):
    net, taps, x = make()
    if rule in refused:
        with pytest.raises(CreditscopeError, match="Expected"):
            apply_rule(rule_class(rule)(), net, taps, x, generator(0, "feedback"))
    else:
        assert_trains(rule, net, taps, x, torch.arange(6) % 3)


@pytest.mark.parametrize("rule", BUILT_IN)
def test_credit_on_a_graph_with_few_labels(rule):
    """Nodes without one may have any label."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    edges = np.triu(rng.random((14, 14)) < 0.3, 1).astype(float)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = GCN((5,), 3, depth=4, width=8, residual=True)
    x = torch.from_numpy(rng.normal(size=(14, 5))).float()
    inputs = (x, Adjacency.normalised(csr_array(edges + edges.T), "row"))
    mask = torch.arange(14) % 4 == 0
    y = torch.where(mask, torch.arange(14) % 3, -1)
    assert_trains(rule, net, resolve_taps(net, "layers.*"), inputs, y, mask)


def assert_trains(rule: str, net: nn.Module, taps: tuple[str, ...], inputs: Any, y: Tensor, mask: Tensor | None = None):
    """Two steps; finite credit of the states' shapes before and after, finite gradients, and a loss that moves."""
    applied = apply_rule(rule_class(rule)(), net, taps, inputs, generator(0, "feedback")).applied
    assert isinstance(applied.rule, TapRule | WeightRule)
    losses = []
    for _ in range(3):
        seen = observe(net, applied, inputs, y, mask=mask, noise=False)
        for a, h in zip(seen.credits, seen.states, strict=True):
            assert a.shape == h.shape
            assert torch.isfinite(a).all()
        optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
        optimiser.zero_grad()
        losses.append(applied.backward(inputs, lambda output: row_errors(output, y, mask=mask)).mean_loss)
        assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
        optimiser.step()
    assert len({float(loss) for loss in losses}) == 3
