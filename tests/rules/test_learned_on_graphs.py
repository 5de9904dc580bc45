"""Learned feedback on a GCN with few labels and an Â that is not symmetric: what nodes without a loss get."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import apply_to, numerical_gradient, see, slopes, small_net, small_net_jacobian, step_of

from creditscope.graph import Adjacency
from creditscope.nets.gcn import GCN
from creditscope.rules import rule_class
from creditscope.rules._pass import gaussian_probe

NODES, INPUTS, WIDTH, CLASSES = 9, 5, 4, 3
TAPS = ("layers.0", "layers.1", "layers.2")


class OnAGraph:
    """A ring of nodes, of which two carry a loss; the rule at work, and what NumPy needs."""

    def __init__(self, rule: str, **options):
        edges = sp.csr_array(np.roll(np.eye(NODES), 1, axis=1) + np.roll(np.eye(NODES), -1, axis=1))
        edges = edges.tolil()
        edges[0, 4] = edges[4, 0] = 1  # nodes of two degrees, so that row-normalised Â is not symmetric
        self.adjacency = Adjacency.normalised(edges.tocsr(), "row", torch.float64)
        draw = torch.Generator().manual_seed(0)
        self.net = GCN((INPUTS,), CLASSES, depth=4, width=WIDTH).double()
        with torch.no_grad():
            for p in self.net.parameters():
                p.copy_(0.9 * torch.randn(p.shape, generator=draw, dtype=torch.float64))
        self.inputs = torch.randn(NODES, INPUTS, generator=draw, dtype=torch.float64), self.adjacency
        self.y = torch.randint(CLASSES, (NODES,), generator=draw)
        self.mask = torch.arange(NODES) < 2
        self.y[~self.mask] = -1
        self.applied = apply_to(rule_class(rule)(**options), self.net, TAPS, self.inputs)
        draw = torch.Generator().manual_seed(3)
        for name, tensor in self.applied.tensors().items():  # away from where nets start at 0
            if tensor.is_floating_point() and ".moments." not in name:
                tensor.add_(0.2 * torch.randn(tensor.shape, generator=draw, dtype=torch.float64))
        self.seen = see(self.applied, self.inputs, self.y, mask=self.mask)
        self.h, self.a, self.g = (
            [t.numpy() for t in ts] for ts in (self.seen.states, self.seen.credits, self.seen.exact)
        )
        self.e = self.seen.errors.error.numpy()
        self.S = self.adjacency.matrix.to_dense().numpy()
        self.W = [layer.conv.linear.weight.detach().numpy().T for layer in self.net.layers]
        self.label = np.eye(CLASSES)[self.y.clamp(min=0).numpy()] * self.mask.numpy()[:, None]

    def pull(self, stage: int, credit: np.ndarray) -> np.ndarray:
        """J_{stage}ᵀ credit for all nodes: H_stage = ReLU(S H W)."""
        return self.S.T @ (credit * (self.h[stage] > 0)) @ self.W[stage].T

    def slopes(self):
        return slopes(self.applied, self.inputs, self.y, mask=self.mask)

    def at_nodes(self, net: str, tap: int | None = None) -> list[np.ndarray]:
        weights = self.applied.feedback[net]
        return [w.numpy() for w in (weights if tap is None else weights[tap])]


def test_what_numpy_knows_is_the_gradient():
    case = OnAGraph("ldrl")
    assert not np.allclose(case.S, case.S.T)
    np.testing.assert_allclose(case.pull(2, case.g[2]), case.g[1], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(case.pull(1, case.g[1]), case.g[0], rtol=1e-10, atol=1e-14)
    silent = ~np.abs(case.g[2]).any(1)
    assert 0 < silent.sum() < (~case.mask.numpy()).sum()  # beside a labelled node there is a gradient, farther off not


def test_ldrl_maps_every_node_by_itself_and_learns_the_mean_of_their_own_jacobians():
    case = OnAGraph("ldrl", mean_rate=1.0)
    for tap in (1, 0):
        np.testing.assert_allclose(case.a[tap], case.a[tap + 1] @ case.applied.feedback["B"][tap].numpy().T, rtol=1e-10)
    counter = case.applied.feedback["counter"]
    learned = case.applied.learned(*step_of(case.applied, case.inputs, case.y, mask=case.mask))
    for tap in (0, 1):
        xi = gaussian_probe(counter, (NODES, WIDTH), torch.float64, tap).numpy()
        pushed = (case.S @ xi @ case.W[tap + 1]) * (case.h[tap + 1] > 0)
        np.testing.assert_allclose(learned[tap], xi.T @ pushed / NODES, rtol=1e-10, atol=1e-14)


def test_dtp_gives_nothing_where_the_top_has_no_gradient():
    case = OnAGraph("dtp")
    silent = ~np.abs(case.g[2]).any(1)
    for tap in (0, 1):
        assert not case.a[tap][silent].any()
        assert np.abs(case.a[tap][~silent]).min() > 0


def test_dni_tells_every_node_and_learns_what_its_neighbours_send_back():
    case = OnAGraph("dni", hidden=3)
    for tap in (0, 1):
        told = np.concatenate([case.h[tap], case.label], axis=1)
        np.testing.assert_allclose(case.a[tap], small_net(case.at_nodes("M", tap), told), rtol=1e-10)
        wanted = case.pull(tap + 1, case.a[tap + 1])

        def loss(weights, told=told, wanted=wanted):
            return np.square(small_net(weights, told) - wanted).sum() / NODES

        found = case.slopes()[tap]
        for own, slope in zip(found, numerical_gradient(loss, case.applied.feedback["M"][tap]), strict=True):
            np.testing.assert_allclose(own, slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["pred", "sim"])
def test_local_losses_are_those_of_the_labelled_nodes(kind):
    case = OnAGraph("local", loss=kind)
    some = case.mask.numpy()
    for tap in range(3):
        assert not case.a[tap][~some].any()
        heads = {name: w[tap].numpy() for name, w in case.applied.feedback["heads"].items()}
        h, y = case.h[tap][some], case.label[some]
        if kind == "pred":
            z = np.exp(h @ heads["A"].T + heads["b"])
            np.testing.assert_allclose(case.a[tap][some], (z / z.sum(1, keepdims=True) - y) @ heads["A"], rtol=1e-9)
        else:

            def loss(a, heads=heads, y=y):
                return np.square(np.corrcoef(a[0] @ heads["C"].T) - np.corrcoef(y)).sum() / 2

            (slope,) = numerical_gradient(loss, [torch.tensor(h)])
            np.testing.assert_allclose(case.a[tap][some], slope, rtol=1e-6, atol=1e-8)


def test_the_state_bridge_goes_through_the_head_of_the_graph():
    """Logits S Ĥ W of labelled nodes, back to all they are made of, and there through G; e is 0 without a label."""
    case = OnAGraph("state_bridge", hidden=3)
    W, weights = case.net.head.linear.weight.detach().numpy().T, case.at_nodes("G")
    assert not case.e[2:].any()
    for tap in (0, 1):
        told = np.concatenate([case.h[tap], np.full((NODES, 1), tap / 2), case.e], axis=1)
        bridged = case.h[tap] + small_net(weights, told)
        z = np.exp(case.S @ bridged @ W)
        e = (z / z.sum(1, keepdims=True) - case.label) * case.mask.numpy()[:, None]
        J = np.eye(WIDTH) + small_net_jacobian(weights, told)[:, :, :WIDTH]
        np.testing.assert_allclose(case.a[tap], np.einsum("no,noi->ni", case.S.T @ e @ W.T, J), rtol=1e-9, atol=1e-14)


def test_the_credit_bridge_tells_every_node_the_slope_of_its_own_value():
    case = OnAGraph("credit_bridge", hidden=3)
    for tap in (0, 1):
        told = np.concatenate([case.h[tap], np.full((NODES, 1), tap / 2), case.e], axis=1)
        np.testing.assert_allclose(
            case.a[tap], small_net_jacobian(case.at_nodes("V"), told)[:, 0, :WIDTH], rtol=1e-9, atol=1e-14
        )
    np.testing.assert_array_equal(case.a[2], case.g[2])
