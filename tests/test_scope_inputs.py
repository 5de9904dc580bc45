"""What `watch` is called with: several arguments, masks, losses of one's own, nets that leave their number format."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import creditscope as cs
from creditscope.graph import Adjacency
from creditscope.nets.gcn import GCN
from creditscope.tasks import load_task

pytestmark = pytest.mark.usefixtures("own_stream")


def plain_net(classes: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, classes))


def test_a_graph_s_nodes_and_edges_are_two_arguments():
    """The gradient at the last hidden layer is Âᵀ E W, with rows of zeros in E where a node has no label."""
    task = load_task("sbm", nodes=160)
    adjacency = Adjacency.normalised(task.adjacency, "row", torch.float64)
    net, x = GCN((task.x.shape[1],), task.classes, depth=3, width=5).double(), torch.from_numpy(task.x).double()
    y, mask = torch.from_numpy(task.y), torch.from_numpy(task.train)
    scope = cs.watch(net, taps="layers.*")
    taken = scope.snapshot((x, adjacency), y, mask=mask)
    dense, W = adjacency.matrix.to_dense().numpy(), net.head.linear.weight.detach().numpy()
    e = (torch.softmax(net(x, adjacency), -1) - nn.functional.one_hot(y, task.classes)).detach().numpy()
    norms = np.linalg.norm(dense.T @ (e * task.train[:, None]) @ W, axis=1)
    assert taken.taps.g_norm[-1] == pytest.approx(np.median(norms[norms > 0]), rel=1e-9)
    assert taken.taps.rows_used[-1] == (norms > 0).sum()
    assert scope.records[0].facts.rows_interact


@pytest.mark.parametrize("rule", ["bp", "dfa"])
def test_a_mask_and_a_loss_of_ones_own_leave_the_other_rows_out(rule):
    def squares(output: Tensor, target: Tensor) -> Tensor:
        return (output - target).square().sum(1)

    net, x, y, mask = plain_net(2), torch.randn(60, 4), torch.randn(60, 2), torch.arange(60) % 3 == 0
    some = cs.watch(net, taps="1", rule=rule, loss=squares).snapshot(x, y, mask=mask)
    only = cs.watch(net, taps="1", rule=rule, loss=squares).snapshot(x[mask], y[mask])
    assert (some.rows_covered, some.taps.rows_used, some.taps.rows_no_gradient) == (20, (20,), (40,))
    for name in ("cos", "g_norm", "ratio", *(["z"] if rule == "dfa" else [])):
        np.testing.assert_allclose(getattr(some.taps, name), getattr(only.taps, name), rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(some.weights.exact_norm, only.weights.exact_norm, rtol=1e-4)


class Casts(nn.Module):
    """A model whose head is float32, whatever its inputs are."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.stem(x))).float()


def test_a_net_that_leaves_float64_has_no_noise_and_says_so():
    net, x, y = Casts(), torch.randn(30, 4), torch.arange(30) % 2
    taken = cs.watch(net, taps="stem").snapshot(x, y)
    assert taken.taps.g_noise == (None,)
    assert [note for note in taken.notes if note.startswith("g_noise not measured") and "torch.float32" in note]
    assert taken.taps.rows_used == (30,)


def test_fitted_rows_are_counted_and_left_out():
    grown, x, y = plain_net(), torch.randn(40, 4), torch.randint(3, (40,))
    with torch.no_grad():
        grown[2].bias += torch.tensor([95.0, 0.0, 0.0])  # rows of class 0 keep an error of about 1e-41
    taken = cs.watch(grown, taps="1", rule="dfa").snapshot(x, y)
    fitted = int((y == 0).sum())
    assert 0 < taken.rows_fitted <= fitted
    assert taken.taps.rows_used[0] <= 40 - taken.rows_fitted
    alone = cs.watch(grown, taps="1", rule="dfa").snapshot(x[y != 0], y[y != 0])
    np.testing.assert_allclose(taken.taps.cos, alone.taps.cos, rtol=1e-3)


def test_rows_without_a_label_may_hold_anything():
    scope = cs.watch(plain_net(), taps="1")
    unlabelled = torch.tensor([0, 1, 2, -100, -100, 1])
    assert scope.snapshot(torch.randn(6, 4), unlabelled, mask=unlabelled >= 0).rows_covered == 4


def test_a_measured_rule_is_not_shown_as_one_that_trained():
    scope = cs.watch(plain_net(), taps="1", rule="dfa")
    scope.snapshot(torch.randn(30, 4), torch.randint(3, (30,)))
    (method,) = scope.audit().methods
    assert method.method == "DFA, measured only"
    assert method.verdict.lines[2].answer != "yes"


def test_interacting_rows_are_those_of_the_last_snapshot():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    scope = cs.watch(net, taps="0")
    for training in (True, False):
        net.train(training)
        scope.snapshot(torch.randn(30, 4), torch.randint(3, (30,)))
        assert scope.audit().methods[0].rows_interact == training
