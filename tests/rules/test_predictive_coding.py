"""Predictive coding and equilibrium propagation against fixed points, closed forms and NumPy written out."""

import numpy as np
import pytest
import torch
from credited import DEPTH, ROWS, SHAPES, at_work, close, graph, learn, shifted, stream
from torch import Tensor, nn

from creditscope.measure.observation import observe
from creditscope.rules import rule_class

EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES)


def arrays(net: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in net.named_parameters()}


class ByHand:
    """The residual stream in NumPy, with ε_l added at every tap: states, gradients, softmax errors."""

    def __init__(self, net: nn.Module, x: Tensor, y: Tensor, shifts: list[np.ndarray]):
        self.p, self.x = arrays(net), x.numpy()
        self.made = [self.x @ self.p["stem.weight"].T + self.p["stem.bias"]]
        self.s, self.slope = [self.made[0] + shifts[0]], []
        for i in range(DEPTH):
            t = np.tanh(self.s[i] @ self.p[f"blocks.{i}.w.weight"].T + self.p[f"blocks.{i}.w.bias"])
            self.slope.append(1 - t**2)
            self.made.append(self.s[i] + t)
            self.s.append(self.made[-1] + shifts[i + 1])
        logits = self.s[-1] @ self.p["head.weight"].T + self.p["head.bias"]
        exp = np.exp(logits - logits.max(1, keepdims=True))
        self.e = exp / exp.sum(1, keepdims=True) - np.eye(exp.shape[1])[y.numpy()]

    def sent_down(self, i: int, above: np.ndarray) -> np.ndarray:
        """J_{l+1}ᵀ a."""
        return above + (above * self.slope[i]) @ self.p[f"blocks.{i}.w.weight"]

    def gradients(self) -> list[np.ndarray]:
        found = [self.e @ self.p["head.weight"]]
        for i in reversed(range(DEPTH)):
            found.insert(0, self.sent_down(i, found[0]))
        return found

    def weight_gradients(self, credit: list[np.ndarray]) -> dict[str, np.ndarray]:
        """δ sᵀ of every stage at the states handed on, mean over rows."""
        found = {"stem.weight": credit[0].T @ self.x, "stem.bias": credit[0].sum(0)}
        for i in range(DEPTH):
            delta = credit[i + 1] * self.slope[i]
            found |= {f"blocks.{i}.w.weight": delta.T @ self.s[i], f"blocks.{i}.w.bias": delta.sum(0)}
        found |= {"head.weight": self.e.T @ self.s[-1], "head.bias": self.e.sum(0)}
        return {name: g / ROWS for name, g in found.items()}


@EVERY_SHAPE
@pytest.mark.parametrize(("rule", "options"), [("pc", {"beta": 0.7}), ("ep", {}), ("ep", {"centred": False})])
def test_one_step_gives_rate_times_the_gradient(rule, options, shape):
    net, x, y, taps = SHAPES[shape]()
    seen = observe(net, at_work(rule, net, x, taps, steps=1, rate=0.37, **options), x, y)
    _, gradients, _ = shifted(net, taps, x, y, [torch.zeros_like(h) for h in seen.states])
    for a, g in zip(seen.credits, gradients, strict=True):
        close(a, 0.37 * g, atol=1e-14)


def test_one_step_on_a_graph_gives_the_gradient_of_all_nodes():
    net, inputs, y, mask, taps = graph()
    seen = observe(net, at_work("pc", net, inputs, taps, steps=1, rate=0.5), inputs, y, mask=mask)
    _, gradients, _ = shifted(net, taps, inputs, y, [torch.zeros_like(h) for h in seen.states], mask)
    assert (gradients[0][~mask] != 0).any()
    for a, g in zip(seen.credits, gradients, strict=True):
        close(a, 0.5 * g, atol=1e-14)


@pytest.mark.parametrize(
    ("shape", "beta", "steps", "rate"),
    [("vectors", 0.3, 600, 0.1), ("images", 0.6, 150, 0.3), ("tokens", 0.3, 200, 0.2)],
)
@pytest.mark.slow
def test_at_equilibrium_the_error_is_the_gradient_of_the_settled_net(shape, beta, steps, rate):
    net, x, y, taps = SHAPES[shape]()
    seen = observe(net, at_work("pc", net, x, taps, beta=beta, steps=steps, rate=rate, inputs="settled"), x, y)
    errors = [-beta * a for a in seen.credits]
    states, gradients, _ = shifted(net, taps, x, y, errors)
    for e, g, exact in zip(errors, gradients, seen.exact, strict=True):
        close(e, -beta * g, atol=2e-15, rtol=0)
        assert (g - exact).norm() > 0.01 * exact.norm()  # the settled net is another
    for s, handed in zip(states, seen.handed_on, strict=True):
        close(s, handed)


@pytest.mark.slow
def test_states_and_errors_settle_at_the_same_point():
    """s ← s − η ∂E/∂s of E = ½ Σ‖s_l − F_l(s_{l−1})‖² + βℓ from the forward's states, and ε_l = s_l − F_l(s_{l−1})."""
    beta, (net, x, y) = 0.8, stream(std=0.3, skip=False)
    with torch.no_grad():
        states = [net.stem(x)]
        for block in net.blocks:
            states.append(block(states[-1]))

    def errors(states: list[Tensor]) -> list[Tensor]:
        made = [net.stem(x), *(block(s) for block, s in zip(net.blocks, states, strict=False))]
        return [s - m for s, m in zip(states, made, strict=True)]

    for _ in range(1500):
        states = [s.detach().requires_grad_() for s in states]
        energy = sum((e.square().sum() / 2 for e in errors(states)), torch.zeros(()))
        energy = energy + beta * nn.functional.cross_entropy(net.head(states[-1]), y, reduction="sum")
        states = [s - 0.15 * g for s, g in zip(states, torch.autograd.grad(energy, states), strict=True)]
    seen = observe(net, at_work("pc", net, x, beta=beta, steps=400, rate=0.1, inputs="settled"), x, y)
    for s, e, handed, a in zip(states, errors(states), seen.handed_on, seen.credits, strict=True):
        close(handed, s.detach(), atol=1e-12)
        close(a, -e.detach() / beta, atol=1e-12)


def test_with_predictions_held_fixed_errors_are_gradients():
    """μ_l = F_l(h_{l−1}) and J_l stay at the forward's: ∂E/∂s_l = ε_l − J_{l+1}ᵀ ε_{l+1}, one sweep down with η = 1.

    That is backprop, and what the rule gives after one step at rate 1.
    """
    net, x, y = stream()
    hand = ByHand(net, x, y, [np.zeros((ROWS, 5))] * (DEPTH + 1))
    s = [h.copy() for h in hand.made]
    s[-1] -= hand.e @ hand.p["head.weight"]
    for i in reversed(range(DEPTH)):
        s[i] -= (s[i] - hand.made[i]) - hand.sent_down(i, s[i + 1] - hand.made[i + 1])
    seen = observe(net, at_work("pc", net, x, steps=1, rate=1.0), x, y)
    for state, made, g, a in zip(s, hand.made, seen.exact, seen.credits, strict=True):
        close(made - state, g, atol=1e-15, rtol=1e-13)
        close(a, g, atol=1e-15, rtol=1e-13)


@pytest.mark.parametrize("inputs", ["forward", "settled"])
def test_settling_and_weight_gradients_by_hand(inputs):
    beta, steps, rate, (net, x, y) = 0.9, 6, 0.2, stream()
    zeros = [np.zeros((ROWS, 5))] * (DEPTH + 1)
    errors = zeros
    for _ in range(steps):
        errors = [e - rate * (e + beta * g) for e, g in zip(errors, ByHand(net, x, y, errors).gradients(), strict=True)]
    credit = [-e / beta for e in errors]
    at = ByHand(net, x, y, errors if inputs == "settled" else zeros)
    expected = at.weight_gradients(credit)
    applied = at_work("pc", net, x, beta=beta, steps=steps, rate=rate, inputs=inputs)
    recorded = learn(applied, x, y)
    close(recorded.loss, nn.functional.cross_entropy(net(x), y, reduction="none").detach())
    seen = observe(net, applied, x, y)
    for a, wanted in zip(seen.credits, credit, strict=True):
        close(a, wanted)
    told = {**seen.exact_weights, **seen.rule_weights}
    for name, gradient in expected.items():
        close(net.get_parameter(name).grad, gradient)
        close(told[name] / ROWS, gradient)
    assert bool(seen.handed_on) == (inputs == "settled")
    for handed, s in zip(seen.handed_on, at.s, strict=False):
        close(handed, s)


def linear_with_squared_loss():
    """A linear stream, its Jacobians J_l of the output by h_l, and e = z − t of ½‖z − t‖²."""
    net, x, _ = stream(linear=True)
    target = torch.randn(ROWS, 3).double()
    p = arrays(net)
    jacobians = [p["head.weight"]]
    for i in reversed(range(DEPTH)):
        jacobians.insert(0, jacobians[0] @ (np.eye(5) + p[f"blocks.{i}.w.weight"]))
    return net, x, target, jacobians, (net(x).detach() - target).numpy()


def half_square(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().sum(1) / 2


@pytest.mark.parametrize("steps", [3, 8])
@pytest.mark.parametrize("rule", ["pc", "ep", "one-sided ep"])
def test_every_step_in_a_linear_net_is_as_the_closed_form_says(rule, steps):
    """ε_l = −β J_lᵀ v with v ← (1 − η) v + η (e − β K v), K = Σ J_l J_lᵀ."""
    beta, rate, (net, x, target, jacobians, e) = 0.05, 0.3, linear_with_squared_loss()
    K = sum(J @ J.T for J in jacobians)

    def settled(beta: float) -> np.ndarray:
        v = np.zeros_like(e)
        for _ in range(steps):
            v = (1 - rate) * v + rate * (e - beta * v @ K)
        return v

    v = settled(beta) if rule != "ep" else (settled(beta) + settled(-beta)) / 2
    options = {"centred": False} if rule == "one-sided ep" else {}
    applied = at_work(rule.split()[-1], net, x, beta=beta, steps=steps, rate=rate, **options)
    for a, J in zip(observe(net, applied, x, target, loss=half_square).credits, jacobians, strict=True):
        close(a, v @ J, atol=1e-12)


@pytest.mark.slow
def test_equilibria_of_a_linear_net_are_as_the_closed_form_says():
    """a_l = J_lᵀ (I + βK)⁻¹ e for predictive coding, J_lᵀ (I − β²K²)⁻¹ e for centred nudging."""
    net, x, target, jacobians, e = linear_with_squared_loss()
    K = sum(J @ J.T for J in jacobians)
    beta = 0.5 / np.linalg.norm(K, 2)  # nudged away from the target there is no equilibrium from 1 on
    solved = {"pc": np.linalg.inv(np.eye(3) + beta * K), "ep": np.linalg.inv(np.eye(3) - beta**2 * K @ K)}
    for rule, matrix in solved.items():
        applied = at_work(rule, net, x, beta=beta, steps=300, rate=0.3)
        for a, J in zip(observe(net, applied, x, target, loss=half_square).credits, jacobians, strict=True):
            close(a, e @ matrix @ J, atol=1e-12)


@pytest.mark.parametrize(("centred", "order"), [(True, 2), (False, 1)])
def test_the_error_of_nudging_falls_as_a_power_of_beta(centred, order):
    betas, (net, x, y) = (1e-1, 1e-2, 1e-3), stream()
    errors = []
    for beta in betas:
        seen = observe(net, at_work("ep", net, x, beta=beta, steps=100, rate=0.3, centred=centred), x, y)
        pairs = zip(seen.credits, seen.exact, strict=True)
        errors.append([float((a - g).norm() / g.norm()) for a, g in pairs])
    slopes = np.diff(np.log(errors), axis=0) / np.diff(np.log(betas))[:, None]
    print(f"centred {centred}: relative errors {errors}, slopes {slopes}")
    np.testing.assert_allclose(slopes[1], order, atol=0.02)
    np.testing.assert_allclose(slopes[0], order, atol=0.25)


def test_one_sided_nudging_is_predictive_coding_at_forward_inputs():
    net, x, y = stream()
    found = [
        observe(net, at_work(rule, net, x, beta=0.3, steps=5, rate=0.2, **options), x, y)
        for rule, options in (("pc", {}), ("ep", {"centred": False}))
    ]
    for a, b in zip(found[0].credits, found[1].credits, strict=True):
        assert torch.equal(a, b)
    assert rule_class("pc")().passes == 24
    assert rule_class("ep")().passes == 45  # both sides share the first pass and its backward
