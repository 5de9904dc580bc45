"""Weight mirror: B is W in the mean, at an angle in closed form; noise goes in where a layer's input does."""

import math

import pytest
import torch
from feedback_nets import apply, cosine
from torch import nn

from creditscope.errors import CreditscopeError
from creditscope.losses import row_errors
from creditscope.measure.observation import observe
from creditscope.rules import layers_with_feedback, rule_class

ROWS = 32


def predicted(d_in: int, rate: float, rows: int = ROWS) -> float:
    return 1 / math.sqrt(1 + rate / (2 - rate) * (d_in + 1) / rows)


def mirrored(layer: nn.Module, shape: tuple[int, ...], rate: float, steps: int):
    """Memories of the first layer after each of many steps at constant weights, from none at all."""
    net = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)).double()
    x = torch.randn(4, *shape).double()
    net(x)
    applied = apply("wm", net, x, ["1"], rate=rate, rows=ROWS)
    first = net[0].feedback.clone()
    net[0].feedback.zero_()
    buffers = dict(net.named_buffers())
    for _ in range(steps):
        for name, new in applied.next_memories().items():
            buffers[name].copy_(new)
        yield net[0].weight.detach(), net[0].feedback, first


LAYERS = {
    "32": (lambda: nn.Linear(32, 48), (32,), 32),
    "128": (lambda: nn.Linear(128, 40), (128,), 128),
    "256": (lambda: nn.Linear(256, 24), (256,), 256),
    "kernel": (lambda: nn.Conv2d(6, 40, 3, stride=2), (6, 8, 8), 54),
    "kernel of groups": (lambda: nn.Conv2d(12, 48, (3, 4), groups=3, padding=1), (12, 6, 6), 48),
}


@pytest.mark.usefixtures("own_stream")
@pytest.mark.parametrize("rate", [0.02, 0.05, 0.3])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.slow
def test_angle_at_constant_weights_in_closed_form(name, rate):
    make, shape, d_in = LAYERS[name]
    settle = math.ceil(6 / rate)
    W, total, cosines = None, 0, []
    for step, (W, B, first) in enumerate(mirrored(make(), shape, rate, settle + 300)):
        if step == 0:
            assert cosine(W, first) == pytest.approx(predicted(d_in, rate), rel=0.02)  # one draw, before training
        if step >= settle:
            cosines.append(cosine(W, B))
            total = total + B / 300
    assert W is not None
    assert sum(cosines) / 300 == pytest.approx(predicted(d_in, rate), rel=0.01)
    # the mean of so many rows, which overlap in what they remember, is nearer by far
    assert cosine(W, total) > predicted(d_in, 2 / (300 * 0.7))
    assert float(total.norm() / W.norm()) == pytest.approx(1, rel=0.02)


@pytest.mark.usefixtures("own_stream")
def test_the_angle_does_not_depend_on_the_weights_nor_on_their_size():
    layer = nn.Linear(64, 32)
    with torch.no_grad():
        layer.weight.copy_(1e3 * torch.randn(32, 2) @ torch.randn(2, 64))
    found = [cosine(W, B) for W, B, _ in mirrored(layer, (64,), 0.1, 300)][60:]
    assert sum(found) / len(found) == pytest.approx(predicted(64, 0.1), rel=0.01)


@pytest.mark.usefixtures("own_stream")
def test_one_step_is_the_running_mean_of_noise_through_the_layer():
    """By hand, with noise of one's own."""
    rule = rule_class("wm")(rate=0.2, rows=5)
    W, memory, xi = torch.randn(4, 3).double(), torch.randn(4, 3).double(), torch.randn(5, 3).double()
    asked = []

    def noise(shape, place=0):
        asked.append(tuple(shape))
        return xi

    found = rule.learn(W, memory, noise)
    wanted = 0.8 * memory
    for row in xi:
        wanted = wanted + 0.2 / 5 * torch.outer(W @ row, row)
    torch.testing.assert_close(found, wanted)
    assert asked == [(5, 3)]


@pytest.mark.usefixtures("own_stream")
def test_feedback_is_learned_in_training_and_not_while_measuring():
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x, y = torch.randn(7, 6).double(), torch.randint(3, (7,))
    applied = apply("wm", net, x, ["1", "3"])
    before = {n: t.clone() for n, t in net.state_dict().items()}
    observe(net, applied, x, y)
    assert all(torch.equal(t, before[n]) for n, t in net.state_dict().items())
    applied.backward(x, lambda output: row_errors(output, y))
    moved = {n for n, t in net.state_dict().items() if not torch.equal(t, before[n])}
    assert moved == {f"{n}.{part}" for n in layers_with_feedback(net) for part in ("feedback", "counter")}


@pytest.mark.usefixtures("own_stream")
def test_layers_whose_weights_are_tied_are_mirrored_each_by_noise_of_its_own():
    net = nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)).double()
    net[2].weight = net[0].weight
    x, y = torch.randn(7, 20).double(), torch.randint(3, (7,))
    applied = apply("wm", net, x, ["1", "3"])
    for _ in range(3):
        applied.backward(x, lambda output: row_errors(output, y))
    assert not torch.equal(net[0].feedback, net[2].feedback)
    for layer in (net[0], net[2]):
        assert cosine(layer.weight, layer.feedback) == pytest.approx(predicted(20, 0.05, 128), rel=0.01)


@pytest.mark.parametrize("options", [{"rate": 0.0}, {"rate": 1.5}, {"rows": 0}])
def test_options_that_mirror_nothing(options):
    with pytest.raises(CreditscopeError, match="rate"):
        rule_class("wm")(**options)
