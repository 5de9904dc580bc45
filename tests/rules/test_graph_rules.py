"""The rules for graphs against dense NumPy: explicit matrices, explicit loops, on symmetric and row-normalised Â."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from learning import learn_once
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from creditscope.graph import Adjacency
from creditscope.losses import errors_function, row_errors
from creditscope.measure.observation import observe
from creditscope.nets.gcn import GCN
from creditscope.rng import generator
from creditscope.rules import apply_rule, rule_class
from creditscope.rules._pass import gaussian_probe
from creditscope.rules._spread import pseudo_errors
from creditscope.taps import resolve_taps
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.stacked import stack_runs

NODES, INPUTS, WIDTH, CLASSES, DEPTH = 17, 5, 6, 3, 4
EVERY_GRAPH = pytest.mark.parametrize("how", ["symmetric", "row"])


class ByHand:
    """A GCN in NumPy: dense S, states, gates and the dense Jacobian of the logits by H_{l+1}."""

    def __init__(self, net: GCN, x: torch.Tensor, adjacency: Adjacency, y: torch.Tensor, mask: torch.Tensor):
        self.S = adjacency.matrix.to_dense().numpy()
        self.W = [conv.linear.weight.detach().numpy().T for conv in [*(layer.conv for layer in net.layers), net.head]]
        self.h, self.gates, linear = [x.numpy()], [], isinstance(net.layers[0].act, nn.Identity)
        for W in self.W[:-1]:
            z = self.S @ self.h[-1] @ W
            self.gates.append(np.ones_like(z) if linear else (z > 0).astype(float))
            self.h.append(z * self.gates[-1])
        logits = self.S @ self.h[-1] @ self.W[-1]
        exp = np.exp(logits - logits.max(1, keepdims=True))
        self.p, self.mask = exp / exp.sum(1, keepdims=True), mask.numpy()
        self.e = (self.p - np.eye(CLASSES)[y.numpy()]) * self.mask[:, None]

    def pseudo(self, alpha: float, steps: int, balance: bool) -> np.ndarray:
        z = self.e
        for _ in range(steps):
            z = (1 - alpha) * self.e + alpha * self.S @ z
        size = np.abs(self.e).sum(1)[self.mask].mean()
        guesses = {}
        for node in np.flatnonzero(~self.mask):
            guess = z[node] * size / np.abs(z[node]).sum()
            if (self.p[node] - guess > 0.5).sum() == 1:
                guesses[node] = guess
        found, labelled = self.e.copy(), self.mask.sum()
        for node, guess in guesses.items():
            found[node] = guess * (labelled / len(guesses) if balance and len(guesses) > labelled else 1)
        return found

    def push(self, tap: int, tangent: np.ndarray) -> np.ndarray:
        """J P: the tangent at H_{tap+1} through every layer above, gates and all."""
        for layer in range(tap + 1, DEPTH):
            tangent = self.S @ tangent @ self.W[layer]
            if layer < DEPTH - 1:
                tangent = tangent * self.gates[layer]
        return tangent

    def power(self, tap: int, most: int) -> np.ndarray:
        return np.linalg.matrix_power(self.S, min(DEPTH - 1 - tap, most))

    def weight_gradients(self, credits: list[np.ndarray]) -> list[np.ndarray]:
        deltas = [a * gate for a, gate in zip(credits, self.gates, strict=True)]
        found = [(self.S @ h).T @ delta for h, delta in zip(self.h, [*deltas, self.e], strict=True)]
        return [g / self.mask.sum() for g in found]


def build(rule: str, how: str = "symmetric", *, linear: bool = False, **options):
    rng = np.random.default_rng(3)
    edges = np.triu(rng.random((NODES, NODES)) < 0.2, 1)
    edges[np.arange(NODES - 1), np.arange(1, NODES)] = True  # connected
    adjacency = Adjacency.normalised(sp.csr_array((edges | edges.T).astype(float)), how, torch.float64)
    x, y = torch.from_numpy(rng.normal(size=(NODES, INPUTS))), torch.from_numpy(rng.integers(CLASSES, size=NODES))
    mask = torch.arange(NODES) % 3 == 0
    torch.manual_seed(0)
    net = GCN((INPUTS,), CLASSES, depth=DEPTH, width=WIDTH).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.9)
    if linear:
        for layer in net.layers:
            layer.act = nn.Identity()
    taps, inputs = resolve_taps(net, "layers.*"), (x, adjacency)
    application = apply_rule(rule_class(rule)(**options), net, taps, inputs, generator(0, "feedback"))
    return net, application.applied, inputs, y, mask, ByHand(net, x, adjacency, y, mask)


def credits_by_hand(rule: str, hand: ByHand, feedback: list[np.ndarray], *, most: int = 10, error=None):
    e = hand.e if error is None else error
    credits = []
    for tap in range(DEPTH - 1):
        R = feedback[tap].T if rule == "dfa_gnn" else feedback[tap]
        S = np.eye(NODES) if rule == "grape" else hand.power(tap, 99 if rule == "dfa_gnn" else most)
        credits.append(S.T @ e @ R)
    return credits


@EVERY_GRAPH
@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("dfa_gnn", {}),
        ("dfa_gnn", {"pseudo": False}),
        ("dfa_gnn", {"alpha": 0.6, "steps": 3}),
        ("dfa_gnn", {"balance": False}),
        ("grape", {}),
        ("kaft", {}),
        ("kaft", {"K": 1}),
        ("kaft", {"K": 0}),
        ("kaft", {"spread": True, "alpha": 0.4, "steps": 7}),
    ],
)
def test_credit_and_gradients_match_the_derivation(rule, options, how):
    net, applied, inputs, y, mask, hand = build(rule, how, **options)
    error = None
    if options.get("pseudo", rule == "dfa_gnn") or options.get("spread"):
        error = hand.pseudo(options.get("alpha", 0.1), options.get("steps", 50), options.get("balance", True))
        guessed = (error[~hand.mask] != 0).any(1)
        assert guessed.sum() > hand.mask.sum()
        assert not guessed.all()
    applied.backward(inputs, lambda output: row_errors(output, y, mask=mask))
    feedback = [b.numpy() for b in applied.feedback]  # as learned in this step
    expected = credits_by_hand(rule, hand, feedback, most=options.get("K", 10), error=error)
    seen = observe(net, applied, inputs, y, mask=mask)
    for a, by_hand in zip(seen.credits, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), by_hand, rtol=1e-9, atol=1e-12)
    for parameter, gradient in zip(net.parameters(), hand.weight_gradients(expected), strict=True):
        np.testing.assert_allclose(parameter.grad.numpy().T, gradient, rtol=1e-9, atol=1e-12)


def norm(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).sum()))


def learned_by_hand(rule: str, hand: ByHand, R: np.ndarray, tap: int, probes: list[np.ndarray], rate: float, most: int):
    if rule == "grape":
        (P,) = probes
        G, size = hand.push(tap, P).T @ P, norm(R)
        cosine = (G * R).sum() / norm(G) / size
        turned = R + rate * size**2 * (G / norm(G) / size - cosine * R / size**2)
        return turned / np.sqrt((turned**2).sum(0))
    S = hand.power(tap, most)
    Q, Y = np.concatenate([S @ P for P in probes]), np.concatenate([hand.push(tap, P) for P in probes])
    fitted = R * (Y * (Q @ R.T)).sum() / ((Q @ R.T) ** 2).sum()
    down = -sum(np.outer(Q[i] @ fitted.T - Y[i], Q[i]) for i in range(len(Q)))
    lengths = np.linspace(0, 1, 5)  # the loss is a parabola in the step's length: its minimum from a fit
    losses = [((Y - Q @ (fitted + t * down).T) ** 2).sum() for t in lengths]
    a, b, _ = np.polyfit(lengths, losses, 2)
    better = fitted - b / (2 * a) * down
    turned = (1 - rate) * R / norm(R) + rate * better / norm(better)
    return turned / norm(turned) * np.sqrt(R.shape[1])


@EVERY_GRAPH
@pytest.mark.parametrize(
    ("rule", "options"), [("grape", {}), ("grape", {"rate": 0.7}), ("kaft", {}), ("kaft", {"K": 1, "probes": 3})]
)
def test_feedback_is_learned_as_derived(rule, options, how):
    _, applied, inputs, _, _, hand = build(rule, how, **options)
    *before, counter = [b.clone() for b in applied.feedback]
    learn_once(applied, inputs)
    *after, next_counter = applied.feedback
    assert (next_counter - counter).tolist() == [0, 1]
    places = range(options.get("probes", 1))
    probes = [gaussian_probe(counter, (NODES, WIDTH), torch.float64, place).numpy() for place in places]
    for tap, (R, new) in enumerate(zip(before, after, strict=True)):
        assert not torch.allclose(R, new)
        expected = learned_by_hand(rule, hand, R.numpy(), tap, probes, applied.rule.rate, options.get("K", 10))
        np.testing.assert_allclose(new.numpy(), expected, rtol=1e-7, atol=1e-9)


def angle_to_weights(applied, hand: ByHand, inputs, *, steps: int) -> list[float]:
    """1 − |cos| of R_l and the product of the weights above, after so many steps at the same weights."""
    for _ in range(steps):
        learn_once(applied, inputs)
    found, M = [], np.eye(CLASSES)
    for tap in reversed(range(DEPTH - 1)):
        M = hand.W[tap + 1] @ M
        R = applied.feedback[tap].numpy()
        found.append(1 - (R * M.T).sum() / norm(R) / norm(M))
    return found[::-1]


@pytest.mark.slow
@EVERY_GRAPH
def test_kaft_finds_the_jacobian_of_a_linear_gcn(how):
    _, applied, inputs, _, _, hand = build("kaft", how, linear=True, rate=1.0, probes=8)
    assert max(angle_to_weights(applied, hand, inputs, steps=25)) < 1e-10
    _, applied, inputs, _, _, hand = build("kaft", how, linear=True, rate=1.0, probes=8, K=1)
    *lower, top = angle_to_weights(applied, hand, inputs, steps=15)
    assert top < 1e-10
    assert min(lower) > 1e-4


@pytest.mark.slow
def test_with_relu_kaft_is_exact_at_the_last_hidden_layer_alone():
    net, applied, inputs, y, mask, hand = build("kaft", "row", rate=1.0, probes=8)
    *lower, top = angle_to_weights(applied, hand, inputs, steps=25)
    assert top < 1e-10
    assert min(lower) > 1e-3
    seen = observe(net, applied, inputs, y, mask=mask)
    a, g = seen.credits[-1], seen.exact[-1]
    torch.testing.assert_close(a / a.norm(), g / g.norm(), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_grape_turns_towards_the_jacobian_of_its_own_rows():
    _, applied, inputs, _, _, hand = build("grape", rate=0.05)
    jacobians = [np.zeros((CLASSES, WIDTH)) for _ in range(DEPTH - 1)]
    for tap, J in enumerate(jacobians):  # Σ_i of the logits of node i by its own state
        for node, unit in np.ndindex(NODES, WIDTH):
            tangent = np.zeros((NODES, WIDTH))
            tangent[node, unit] = 1
            J[:, unit] += hand.push(tap, tangent)[node]

    def cosines(feedback) -> np.ndarray:
        return np.array([(R * J).sum() / norm(R) / norm(J) for R, J in zip(feedback, jacobians, strict=True)])

    taken = []
    for _ in range(100):
        taken.append([R.numpy().copy() for R in applied.feedback[:-1]])
        learn_once(applied, inputs)
    late = cosines([sum(matrices) for matrices in zip(*taken[40:], strict=True)])
    assert late[-1] > 0.7
    assert (late > cosines(taken[0]) + 0.3).all()
    for R in applied.feedback[:-1]:
        np.testing.assert_allclose((R**2).sum(0).numpy(), 1, rtol=1e-12)


def test_a_net_that_does_not_answer_leaves_the_feedback_where_it_is():
    for rule in ("grape", "kaft"):
        net, applied, inputs, *_ = build(rule)
        with torch.no_grad():
            net.head.linear.weight.zero_()
        *before, _ = [b.clone() for b in applied.feedback]
        learn_once(applied, inputs)
        for a, b in zip(before, applied.feedback, strict=False):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=0)  # they are drawn, and scaled, in float32


def test_only_the_direction_of_the_jacobian_counts_however_small():
    found = []
    for size in (1.0, 1e-120):
        net, applied, inputs, *_ = build("kaft")
        with torch.no_grad():
            net.head.linear.weight.mul_(size)
        learn_once(applied, inputs)
        found.append(applied.feedback[:-1])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_pseudo_errors_by_hand_on_five_nodes():
    """A path 0 − 1 − 2 − 3 and a node of its own, 4; node 0 is labelled, one step of α = ½ with S of ones."""
    S = np.diag(np.ones(5)) + np.diag([1, 1, 1, 0], 1) + np.diag([1, 1, 1, 0], -1)
    matrix = torch.from_numpy(S).to_sparse_csr()
    error = torch.zeros(5, 3).double()
    error[0] = torch.tensor([-0.6, 0.4, 0.2])
    mask = torch.tensor([True, False, False, False, False])
    log = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.5, 0.3], [0.05, 0.9, 0.05], [0.3, 0.4, 0.3], [0.9, 0.05, 0.05]]).log()
    graph = Adjacency(matrix, matrix)

    def spread(steps: int, mask: torch.Tensor | None = mask, balance: bool = False) -> torch.Tensor:
        return pseudo_errors(graph, error, log.double(), mask, alpha=0.5, steps=steps, balance=balance)

    # Z_1 = ½ (S E)_1 = ½ e_0, of L1 size .6; rescaled to 1.2 it is e_0 again; .2 + .6 > ½ alone, so it is kept
    torch.testing.assert_close(spread(1), torch.stack([error[0], error[0], *[torch.zeros(3).double()] * 3]))
    # node 2 is reached, too: p − Ê = (.65, .5, −.15) there: class 0 alone exceeds ½
    torch.testing.assert_close(spread(2)[2], error[0])
    torch.testing.assert_close(spread(1, balance=True), spread(1))  # one labelled, one guessed
    balanced = spread(2, balance=True)  # two guessed: half each; node 4 is reached by none and does not count
    torch.testing.assert_close(balanced, spread(2) * torch.tensor([[1], [0.5], [0.5], [1], [1]]))
    log[2] = torch.tensor([0.05, 0.94, 0.01]).log()  # now (.65, .54, −.19): two do
    assert (spread(2)[2] == 0).all()
    assert spread(2, mask=None) is error


def test_pseudo_errors_are_never_scaled_up():
    """A path 0 − 1 − 2 − 3 whose ends and third node are labelled: one guessed row beside three true ones."""
    path = sp.csr_array(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    graph = Adjacency.normalised(path, dtype=torch.float64)
    error = torch.tensor([[-0.6, 0.4, 0.2], [0.0, 0.0, 0.0], [-0.3, 0.2, 0.1], [-0.9, 0.6, 0.3]]).double()
    mask = torch.tensor([True, False, True, True])
    log = torch.tensor([[0.4, 0.4, 0.2]] * 4).double().log()
    plain, balanced = (
        pseudo_errors(graph, error, log, mask, alpha=0.5, steps=1, balance=balance) for balance in (False, True)
    )
    # Z_1 is along (−3, 2, 1); its L1 size becomes the mean of 1.2, .6 and 1.8
    torch.testing.assert_close(plain[1], torch.tensor([-0.6, 0.4, 0.2]).double())
    torch.testing.assert_close(balanced, plain)


class Operations(TorchDispatchMode):
    """Inside, every operation is noted by its name."""

    def __init__(self):
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "unique", "equal", "is_nonzero"}
"""Operations that wait for the device, or whose shape depends on data: they cannot be captured in a CUDA graph."""


@pytest.mark.parametrize("rule", ["dfa_gnn", "grape", "kaft"])
def test_a_step_of_a_stack_never_asks_for_a_number(rule):
    options = {"depth": 3, "width": 8, "dropout": 0.2}
    specs = [plan_run(task="sbm", net="gcn", net_options=options, rule=rule, seed=seed) for seed in (1, 2)]
    run = stack_runs([build_run(spec) for spec in specs])
    applied, batch = run.application.applied, run.data.train_batch()
    applied.backward(batch.inputs, errors_function(run.net, batch.target, mask=batch.mask))
    with Operations() as seen:
        applied.backward(batch.inputs, errors_function(run.net, batch.target, mask=batch.mask))
    assert "mm" in seen.names
    assert not seen.names & WAITING
    with Operations() as control:
        float(batch.target.sum())
    assert control.names & WAITING
