"""Watching sampled neighbourhoods of a graph: exact for what was sampled, the whole graph's where all of it was."""

import importlib
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import creditscope as cs
from creditscope.measure.observation import observe
from creditscope.tasks import load_task

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch_geometric calls what torch has deprecated
        importlib.import_module("torch_geometric.nn")
except ImportError:
    pytest.skip("needs torch_geometric: pip install -e '.[pyg]'", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore:.*pyg-lib:UserWarning", "ignore::DeprecationWarning")
NODES, DEPTH = 300, 3


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "examples"))
    return importlib.import_module("watch_pyg_neighbours")


@pytest.fixture(params=["NumPy", "compiled"])
def load(request, example):
    """A function from the data, the neighbours and more to a loader."""
    neighbours = importlib.import_module("neighbours")
    if request.param == "compiled" and not neighbours.COMPILED:
        pytest.skip("needs pyg-lib or torch-sparse beside torch_geometric")
    return lambda *args, **given: neighbours.neighbour_loader(*args, compiled=request.param == "compiled", **given)


def graph(example):
    data = example.graph_of(load_task("sbm", nodes=NODES, degree=4.0))
    data.x = data.x.double()
    return data


def sage(example):
    torch.manual_seed(1)
    return example.SAGE([32, 10, 10, 4]).double()


def whole_graph_gradients(model, data, seeds) -> list[np.ndarray]:
    """∂(Σ losses of the seeds)/∂z_l of GraphSAGE on all nodes, derived by hand: Z = M H Wₗᵀ + b + H Wᵣᵀ, M = D⁻¹A."""
    a = np.zeros((NODES, NODES))
    sources, targets = data.edge_index.numpy()
    a[targets, sources] = 1
    m = a / np.maximum(a.sum(1, keepdims=True), 1)
    layers = [[t.detach().numpy() for t in (c.lin_l.weight, c.lin_l.bias, c.lin_r.weight)] for c in model.convs]
    h, z = data.x.numpy(), []
    for neighbour, bias, root in layers:
        z.append(m @ h @ neighbour.T + bias + h @ root.T)
        h = np.maximum(z[-1], 0)
    p = np.exp(z[-1] - z[-1].max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    g = np.zeros_like(p)
    g[seeds] = (p - np.eye(4)[data.y.numpy()])[seeds]
    found = []
    for (neighbour, _, root), below in zip(layers[:0:-1], z[-2::-1], strict=True):
        g = (m.T @ g @ neighbour + g @ root) * (below > 0)
        found.insert(0, g)
    return found


def gradients(model, data) -> tuple[torch.Tensor, ...]:
    """∂(Σ losses of the first five nodes)/∂z_l by autograd."""
    kept = []
    handles = [conv.register_forward_hook(lambda *args: kept.append(args[2])) for conv in model.convs[:-1]]
    output = model(data.x, data.edge_index)[:5]
    for handle in handles:
        handle.remove()
    return torch.autograd.grad(torch.nn.functional.cross_entropy(output, data.y[:5], reduction="sum"), kept)


def observed(model, batch, *more) -> list[torch.Tensor]:
    """Gradients at the taps that a snapshot of the batch is made of."""
    scope = cs.watch(model, taps=["convs.0", "convs.1"])
    inputs, seeds = (batch.x, batch.edge_index, *more), torch.arange(batch.num_nodes) < batch.batch_size
    scope.snapshot(inputs, batch.y, mask=seeds, tier="quick")
    return observe(model, scope._application.applied, inputs, batch.y, mask=seeds, noise=False).exact


def test_with_all_neighbours_gradients_are_the_whole_graphs(example, load):
    data, model = graph(example), sage(example)
    batch = next(iter(load(data, [-1] * DEPTH, input_nodes=torch.arange(7, 12), batch_size=5)))
    assert batch.num_nodes < NODES
    expected = whole_graph_gradients(model, data, batch.n_id[:5].numpy())
    for g, whole in zip(observed(model, batch), expected, strict=True):
        np.testing.assert_allclose(g, whole[batch.n_id.numpy()], rtol=1e-9, atol=1e-12)
        assert np.abs(whole).sum() == pytest.approx(float(g.abs().sum()), rel=1e-9)  # no other node has any
    taken = example.watch_batch(cs.watch(model, taps=["convs.0", "convs.1"]), batch, epoch=0)
    for g_norm, whole in zip(taken.taps.g_norm, expected, strict=True):
        norms = np.linalg.norm(whole, axis=1)
        assert g_norm == pytest.approx(np.median(norms[norms > 0]), rel=1e-9)


def test_with_few_neighbours_gradients_are_those_of_the_sampled_graph(example, load):
    data, model = graph(example), sage(example)
    batch = next(iter(load(data, [2] * DEPTH, input_nodes=torch.arange(7, 12), batch_size=5)))
    whole = whole_graph_gradients(model, data, batch.n_id[:5].numpy())
    for g, expected, all_of_it in zip(observed(model, batch), gradients(model, batch), whole, strict=True):
        torch.testing.assert_close(g, expected, rtol=1e-9, atol=1e-12)
        assert not np.allclose(g, all_of_it[batch.n_id.numpy()], rtol=0.01)


def test_a_gcn_needs_the_degrees_of_the_whole_graph(example, load):
    from torch_geometric.nn import GCNConv  # pyright: ignore[reportMissingImports]
    from torch_geometric.nn.conv.gcn_conv import gcn_norm  # pyright: ignore[reportMissingImports]

    class GCN(torch.nn.Module):
        def __init__(self, normalize):
            super().__init__()
            self.convs = torch.nn.ModuleList(GCNConv(a, b, normalize=normalize) for a, b in pairwise([32, 10, 10, 4]))

        def forward(self, x, edge_index, weight=None):
            for conv in self.convs[:-1]:
                x = conv(x, edge_index, weight).relu()
            return self.convs[-1](x, edge_index, weight)

    data, seeds = graph(example), torch.arange(5)
    torch.manual_seed(1)
    normalising, given = GCN(True).double(), GCN(False).double()
    given.load_state_dict(normalising.state_dict())
    whole = gradients(normalising, data)

    batch = next(iter(load(data, [-1] * DEPTH, input_nodes=seeds, batch_size=5)))
    for g, expected in zip(observed(normalising, batch), whole, strict=True):
        assert not np.allclose(g, expected[batch.n_id], rtol=0.01)

    data.edge_index, data.edge_weight = gcn_norm(data.edge_index, None, NODES, dtype=torch.float64)
    batch = next(iter(load(data, [-1] * DEPTH, input_nodes=seeds, batch_size=5)))
    for g, expected in zip(observed(given, batch, batch.edge_weight), whole, strict=True):
        torch.testing.assert_close(g, expected[batch.n_id], rtol=1e-9, atol=1e-12)


def test_the_sampler_draws_edges_of_the_graph_without_repeats(example):
    neighbours = importlib.import_module("neighbours")
    data = graph(example)
    there = {tuple(edge) for edge in data.edge_index.T.tolist()}
    degree = np.bincount(data.edge_index[1], minlength=NODES)
    drawn = np.zeros(NODES)
    loader = neighbours.neighbour_loader(data, [3, 2], compiled=False, input_nodes=None, batch_size=30, shuffle=True)
    for batch in loader:
        n_id = batch.n_id.numpy()
        assert len(set(n_id)) == len(n_id)
        edges = [tuple(edge) for edge in n_id[batch.edge_index.numpy()].T.tolist()]
        assert len(set(edges)) == len(edges)
        assert set(edges) <= there
        np.testing.assert_array_equal(data.edge_index[:, batch.e_id], n_id[batch.edge_index.numpy()])
        assert torch.equal(batch.x, data.x[batch.n_id])
        into = np.bincount(batch.edge_index[1], minlength=batch.num_nodes)
        np.testing.assert_array_equal(into[:30], np.minimum(degree[n_id[:30]], 3))
        assert into[30:].max() <= 2
        drawn[n_id[:30]] += 1
    assert (drawn == 1).all()


def test_the_example_runs(example, capsys):
    arguments = ["--nodes", "400", "--epochs", "2", "--width", "8", "--batch", "32", "--neighbours", "3"]
    scope = example.main(arguments)
    printed = capsys.readouterr().out
    assert [s.epoch for s in scope.snapshots] == [0, 1, 2]
    assert "sampled nodes, of them 32 seeds" in printed
    assert scope.records[0].facts.rows_interact
    assert scope.snapshots[-1].rows_covered == 32
    assert scope.snapshots[-1].loss < scope.snapshots[0].loss
