"""The GCN and its options against dense NumPy, what it names, and rules and measurements on its variants."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from trained import train_run

from creditscope.anatomy import examine
from creditscope.graph import Adjacency
from creditscope.measure.ablation import measure_skips
from creditscope.measure.layers import layer_names
from creditscope.nets._layers import PairNorm
from creditscope.nets.gcn import GCN
from creditscope.record import RunSpec
from creditscope.stack import StackedNet
from creditscope.taps import resolve_taps, watch_forward
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.snapshots import _subjects, snapshot_run
from creditscope.train.stacked import stack_runs

NODES, FEATURES, CLASSES = 14, 6, 3
VARIANTS = {
    "plain": {},
    "residual": {"residual": True},
    "pair": {"norm": "pair"},
    "mlp": {"propagate": False},
    "all": {"residual": True, "norm": "pair", "propagate": False},
}
EVERY_VARIANT = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


def graph(how: str = "symmetric") -> tuple[Adjacency, np.ndarray]:
    """A small random graph as Â and as a dense matrix."""
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((NODES, NODES)) < 0.25, 1)
    looped = (upper | upper.T) + np.eye(NODES)
    degree = looped.sum(1)
    dense = looped / degree[:, None] if how == "row" else looped / np.sqrt(np.outer(degree, degree))
    return Adjacency.normalised(sp.csr_array((upper | upper.T).astype(float)), how, torch.float64), dense


def build(depth: int = 4, **options) -> GCN:
    torch.manual_seed(1)
    return GCN((FEATURES,), CLASSES, depth=depth, width=5, **options).double()


def plan(how: Mapping[str, Any] | None = None, **options) -> RunSpec:
    """A run of a GCN of width 8 on a small graph."""
    fields = {"task": "sbm", "task_options": {"nodes": 160}, "net": "gcn", "net_options": {"width": 8, **options}}
    return plan_run(**{**fields, "epochs": 1, "tier": "quick", "snapshot_every": 0, **(how or {})})


def pair_norm(z: np.ndarray) -> np.ndarray:
    centred = z - z.mean(0)
    return centred / np.sqrt((np.linalg.norm(centred, axis=1) ** 2).mean())


def dense_forward(net: GCN, x: np.ndarray, dense: np.ndarray, *, residual=False, norm="none", propagate=True):
    """Z_0 .. Z_{L−1} and H_0 .. H_L."""
    dense = dense if propagate else np.eye(len(dense))
    weights = [p.detach().numpy().T for p in net.parameters()]
    pre, states = [], [x]
    for i, w in enumerate(weights[:-1]):
        pre.append(dense @ states[-1] @ w)
        new = np.maximum(pair_norm(pre[-1]) if norm == "pair" else pre[-1], 0)
        states.append(states[-1] + new if residual and i > 0 else new)
    pre.append(dense @ states[-1] @ weights[-1])
    return pre, [*states, pre[-1]]


@EVERY_VARIANT
@pytest.mark.parametrize("how", ["symmetric", "row"])
def test_forward_matches_dense_numpy(options, how):
    net, (adjacency, dense) = build(**options), graph(how)
    x = torch.randn(NODES, FEATURES, dtype=torch.float64)
    names = layer_names(net)
    assert names == ("layers.0.conv", "layers.1.conv", "layers.2.conv", "head")
    taps = resolve_taps(net, net.block_taps)
    forward = watch_forward(net, [*names, *taps], (x, adjacency))
    pre, states = dense_forward(net, x.numpy(), dense, **options)
    for found, wanted in zip(forward.states, [*pre, *states[1:-1]], strict=True):
        np.testing.assert_allclose(found.detach(), wanted, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(forward.output.detach(), pre[-1], rtol=1e-11, atol=1e-13)


@EVERY_VARIANT
def test_a_stack_of_seeds_is_every_net_alone(options):
    nets, (adjacency, _) = [build(**options) for _ in range(3)], graph()
    for i, net in enumerate(nets):
        for p in net.parameters():
            p.data *= 1 + 0.3 * i
    x = torch.randn(NODES, FEATURES, dtype=torch.float64)
    stacked = StackedNet.of(nets)((x, adjacency))
    for i, net in enumerate(nets):
        torch.testing.assert_close(stacked[i], net(x, adjacency), rtol=1e-12, atol=1e-14)


@EVERY_VARIANT
def test_anatomy_knows_what_adds(options):
    adjacency, _ = graph()
    net, x = build(**options), torch.randn(NODES, FEATURES, dtype=torch.float64)
    anatomy = examine(net, resolve_taps(net, net.block_taps), (x, adjacency))
    assert anatomy.taps == ("layers.0", "layers.1", "layers.2")
    assert anatomy.stages == tuple((name,) for name, _ in net.named_parameters())
    adds = options.get("residual", False)
    assert anatomy.residual == (False, adds, adds)
    assert anatomy.rows_interact == (options.get("propagate", True) or options.get("norm") == "pair")


class TestPairNorm:
    @pytest.mark.parametrize("size", [1.0, 1e-30, 1e30])
    def test_centres_nodes_and_sets_their_mean_square_norm(self, size):
        x = PairNorm()(torch.randn(50, 4) * size + 2 * size).double()
        assert float(x.mean(0).abs().max()) < 1e-6
        assert float(x.square().sum(1).mean()) == pytest.approx(1, rel=1e-5)

    @pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own use of it
    def test_gradient_and_tangent_match_finite_differences(self):
        x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(PairNorm(), (x,), check_forward_ad=True)

    def test_equal_nodes_become_zero_with_finite_gradients(self):
        x = torch.zeros(6, 3, requires_grad=True)
        y = PairNorm()(x)
        (g,) = torch.autograd.grad(y.sum(), x)
        assert not y.any()
        assert g.isfinite().all()


def test_skipping_a_residual_layer_is_the_net_without_its_branch():
    run = build_run(plan(depth=4, residual=True))
    run.net.eval()
    (subject,) = _subjects(run, run.data.snapshot_batch())
    found = measure_skips(subject)["skip_one"]
    assert found[0].isnan()
    (batch,) = run.data.test_batches()
    for tap in (1, 2):
        weight = dict(run.net.named_parameters())[f"layers.{tap}.conv.linear.weight"]
        kept, weight.data = weight.data, torch.zeros_like(weight)  # ReLU(0) is added
        right = (run.net(*batch.inputs).argmax(-1) == batch.target)[batch.scored]
        weight.data = kept
        assert float(found[tap]) == pytest.approx(float(right.double().mean()))


@pytest.mark.slow
@EVERY_VARIANT
@pytest.mark.parametrize("rule", ["bp", "fa", "dfa"])
def test_variants_train_under_rules(options, rule):
    how = {"rule": rule, "epochs": 20, "optimiser": "adam", "lr": 0.01, "schedule": "constant"}
    run, taken, losses = build_run(plan(how, depth=3, **options)), [], []
    before = snapshot_run(run, 0)
    train_run(run, on_snapshots=taken.extend, on_epoch=lambda _, found: losses.extend(found))
    assert taken[:1] == before
    assert losses[-1] < losses[0]
    assert taken[-1].train_loss == losses[-1]
    assert run.facts.residual == (False, options.get("residual", False))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["grape", "kaft"])
def test_feedback_is_learned_through_pair_norm_alone_and_in_a_stack(rule):
    how = {"rule": rule, "epochs": 2, "precision": "float64"}
    specs = [plan({**how, "seed": seed}, depth=4, norm="pair") for seed in (1, 2)]
    alone, together = [build_run(spec) for spec in specs], stack_runs([build_run(spec) for spec in specs])
    for run in (*alone, together):
        for epoch in range(2):
            run.train_epoch(epoch, keep_last=False)
    for place, run in enumerate(alone):
        for name, tensor in run.tensors().items():
            torch.testing.assert_close(together.tensors(place)[name], tensor, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_twenty_stacked_seeds_are_twenty_single_runs():
    how = {"optimiser": "adam", "weight_decay": 5e-4, "lr": 0.01, "epochs": 3}
    specs = [plan({**how, "seed": seed}, depth=6) for seed in range(20)]
    together, stacked = stack_runs([build_run(spec) for spec in specs]), []
    train_run(together, on_snapshots=lambda taken: stacked.append(taken))
    for place, spec in enumerate(specs):
        alone, single = build_run(spec), []
        train_run(alone, on_snapshots=single.extend)
        assert [moment[place] for moment in stacked] == single
        for name, tensor in alone.tensors().items():
            assert torch.equal(together.tensors(place)[name], tensor), name
