"""Kolen–Pollack: W − B shrinks as the schedule says through real runs, and what is left of that under coupled Adam."""

import math

import numpy as np
import pytest
import torch
from feedback_nets import apply
from torch import nn

from creditscope.errors import CreditscopeError
from creditscope.losses import row_errors
from creditscope.rules import layers_with_feedback, rule_class
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run

EPOCHS, LR = 3, 0.02
SMALL = {"task": "digits", "net_options": {"depth": 2, "width": 16}, "epochs": EPOCHS, "eval_rows": 64, "lr": LR}


def build(decay: float, optimiser: str = "adamw", **fields) -> Run:
    spec = {"rule": "kp", "rule_options": {"decay": decay}, "optimiser": optimiser, "precision": "float64"}
    return build_run(plan_run(**SMALL | spec | fields))


def weights_and_memories(run: Run) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    layers = layers_with_feedback(run.net)
    return {n: (layer.weight.detach().clone(), layer.feedback.clone()) for n, layer in layers.items()}


def shrunk(run: Run, decay: float, schedule: str) -> float:
    """Π(1 − η_s λ) over all steps."""
    rates = [LR * (0.5 * (1 + math.cos(math.pi * e / EPOCHS)) if schedule == "cosine" else 1) for e in range(EPOCHS)]
    return math.prod((1 - rate * decay) ** run.data.steps for rate in rates)


def train(run: Run) -> None:
    for epoch in range(EPOCHS):
        run.train_epoch(epoch, keep_last=False)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
@pytest.mark.parametrize(("decay", "schedule"), [(1.0, "cosine"), (3.0, "constant"), (0.0, "cosine")])
def test_the_difference_shrinks_by_the_product_of_the_steps(optimiser, decay, schedule):
    run = build(decay, optimiser, schedule=schedule)
    before = weights_and_memories(run)
    factor = shrunk(run, decay, schedule)
    train(run)
    after = weights_and_memories(run)
    assert len(after) == 6
    assert decay == 0 or factor < 0.8
    for n, (W, B) in after.items():
        wanted = factor * (before[n][0] - before[n][1])
        assert float((W - B - wanted).norm() / wanted.norm()) < 1e-12
        assert float((W - factor * before[n][0]).norm() / W.norm()) > 1e-3  # gradients moved both, too


def test_feedback_that_starts_at_the_weights_stays_backprop():
    run, twin = build(0.01, weight_decay=0.01), build_run(plan_run(**SMALL | {"rule": "bp", "precision": "float64"}))
    for layer in layers_with_feedback(run.net).values():
        layer.feedback.copy_(layer.weight.detach())
    for one in (run, twin):
        train(one)
    for name, p in twin.net.named_parameters():
        torch.testing.assert_close(run.net.get_parameter(name), p, rtol=1e-9, atol=1e-12, msg=name)


def by_adam(start: torch.Tensor, gradients: list[torch.Tensor], rates: list[float], decay: float) -> np.ndarray:
    """Adam with the L2 term inside, by hand."""
    w = start.numpy().copy()
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        g = gradient.numpy() + decay * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_under_coupled_adam_both_take_the_gradient_with_a_decay_of_their_own(decay):
    """Moments then differ: the difference stays without decay, and with it is no product of the steps any more."""
    run = build(decay, "adam")
    before, told, rates = weights_and_memories(run), [], []

    def note(optimiser, *_) -> None:
        told.append({n: layer.weight.grad.clone() for n, layer in layers_with_feedback(run.net).items()})
        rates.append(optimiser.param_groups[0]["lr"])

    run.optimiser.register_step_pre_hook(note)
    train(run)
    for n, (W, B) in weights_and_memories(run).items():
        for now, start in ((W, before[n][0]), (B, before[n][1])):
            wanted = by_adam(start, [one[n] for one in told], rates, decay)
            np.testing.assert_allclose(now.numpy(), wanted, rtol=1e-8, atol=1e-10)
        difference, started = W - B, before[n][0] - before[n][1]
        product = shrunk(run, decay, "cosine") * started
        off = float((difference - product).norm() / product.norm())
        assert off < 1e-12 if decay == 0 else off > 0.01


def test_decay_is_the_rules_own_on_weights_and_feedback_and_the_runs_elsewhere():
    run = build(0.7, weight_decay=0.02)
    found = {id(t): group["weight_decay"] for group in run.optimiser.param_groups for t in group["params"]}
    layers = layers_with_feedback(run.net)
    for name, p in run.net.named_parameters():
        own = name.removesuffix(".weight") in layers and name.endswith(".weight")
        assert found[id(p)] == (0.7 if own else 0.02), name
    assert {found[id(layer.feedback)] for layer in layers.values()} == {0.7}
    assert sum(len(group["params"]) for group in run.optimiser.param_groups) == len(found)


def test_frozen_weights_keep_their_feedback():
    run = build(1.0, frozen=True)
    before = weights_and_memories(run)
    train(run)
    for n, (W, B) in weights_and_memories(run).items():
        assert torch.equal(B, before[n][1]) == torch.equal(W, before[n][0]) == n.startswith("blocks"), n


def test_layers_whose_weights_are_tied_have_feedback_each_and_both_follow():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    net[2].weight = net[0].weight
    x, y = torch.randn(9, 4).double(), torch.randint(3, (9,))
    applied = apply("kp", net, x, ["1", "3"])
    followers = applied.followers()
    assert [len(members) for members in followers.values()] == [2, 1]
    started = [net[i].weight.detach() - net[i].feedback for i in (0, 2)]
    assert not torch.equal(net[0].feedback, net[2].feedback)
    members = [t for n, p in net.named_parameters() for t in (p, *followers.get(n, []))]
    optimiser = torch.optim.AdamW(members, lr=0.05, weight_decay=1.0)
    for _ in range(20):
        optimiser.zero_grad()
        applied.backward(x, lambda output: row_errors(output, y))
        optimiser.step()
    assert net[0].weight is net[2].weight
    for i, start in zip((0, 2), started, strict=True):
        torch.testing.assert_close(net[i].weight.detach() - net[i].feedback, 0.95**20 * start, rtol=1e-11, atol=1e-13)


@pytest.mark.usefixtures("own_stream")
def test_feedback_starts_as_another_draw_at_the_size_of_the_weights():
    net = nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 1), nn.Tanh(), nn.Linear(1, 1)).double()
    nn.init.normal_(net[0].weight, std=0.01)
    apply("kp", net, torch.randn(5, 300).double(), ["1"])
    layer = net[0]
    assert float(layer.feedback.std() / layer.weight.detach().std()) == pytest.approx(1, rel=0.01)
    assert abs(float((layer.feedback * layer.weight.detach()).mean())) < 4e-4 * 0.01
    assert net[4].feedback.isfinite().all()  # a single entry has no spread


def test_a_decay_below_zero():
    with pytest.raises(CreditscopeError, match=r"-0\.1"):
        rule_class("kp")(decay=-0.1)
