"""Sign-symmetric feedback: angles in closed form, sizes as stated, magnitudes drawn when they should be."""

import math

import pytest
import torch
from feedback_nets import NETS, apply, backprop, built, carried, cosine, draw, gradients, relative_error
from torch import nn

import creditscope as cs
from creditscope.losses import row_errors
from creditscope.measure.observation import observe
from creditscope.rules import layers_with_feedback, rule_class, weights_and_feedback

ONE_PERCENT = 0.01
WIDE, HIGH = 400, 300


def wide_net(init) -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDE, HIGH), nn.Tanh(), nn.Linear(HIGH, 200), nn.Tanh(), nn.Linear(200, 100)).double()
    for layer in net[::2]:
        init(layer.weight)
    return net, torch.randn(20, WIDE).double()


def gaussian(weight):
    nn.init.normal_(weight, std=0.01)


def uniform(weight):
    nn.init.uniform_(weight, -0.3, 0.3)


@pytest.mark.usefixtures("own_stream")
@pytest.mark.parametrize("scale", ["mean", "unit", "init"])
@pytest.mark.parametrize(
    ("variant", "init", "expected"),
    [
        ("u", gaussian, math.sqrt(2 / math.pi)),
        ("u", uniform, math.sqrt(3) / 2),
        ("fr", gaussian, 2 / math.pi),
        ("br", gaussian, 2 / math.pi),
        ("fr", uniform, math.sqrt(3) / 2 * math.sqrt(2 / math.pi)),
    ],
    ids=["u Gaussian", "u uniform", "fr Gaussian", "br Gaussian", "fr uniform"],
)
def test_angle_to_the_weights_in_closed_form(variant, init, expected, scale):
    """E|W|·E|M| / (rms W · rms M), whatever the scale."""
    net, x = wide_net(init)
    apply("sign_fa", net, x, ["1", "3"], variant=variant, scale=scale)
    for layer in net[::2]:
        B = carried(layer)
        assert torch.equal(B.sign(), layer.weight.sign())
        assert cosine(layer.weight, B) == pytest.approx(expected, rel=ONE_PERCENT)


@pytest.mark.usefixtures("own_stream")
@pytest.mark.parametrize("variant", ["u", "fr"])
def test_a_snapshot_reports_the_angle_of_what_carries_credit(variant):
    """Not that of the bare magnitudes, which stand at about 90°."""
    net, x = wide_net(gaussian)
    cs.convert(net, "sign_fa", taps=["1", "3"], inputs=x, variant=variant)
    taken = cs.watch(net, taps=["1", "3"]).snapshot(x, torch.arange(20))
    expected = {"u": math.sqrt(2 / math.pi), "fr": 2 / math.pi}[variant]
    angles = [a for a in taken.weights.feedback_angle if a is not None]
    assert len(angles) == 3
    for angle in angles:
        assert math.cos(math.radians(angle)) == pytest.approx(expected, rel=ONE_PERCENT)


@pytest.mark.parametrize("variant", ["u", "fr", "br"])
def test_sizes_are_as_stated(variant):
    """Mean |B| is that of |W| now, 1/√in, or that of |W| at initialisation; in: over the places of a group's kernel."""
    fan_in = {"0": 2 * 9, "2": 2 * 6, "4": 6 * 9, "7": 48}
    for scale in ("mean", "unit", "init"):
        applied, plain, *_ = built("sign_fa", "conv", variant=variant, scale=scale)
        first = {n: float(plain.get_parameter(f"{n}.weight").detach().abs().mean()) for n in fan_in}
        with torch.no_grad():
            for p in applied.net.parameters():
                p.mul_(-3)
        for name, (W, B) in weights_and_feedback(applied.net).items():
            n = name.removesuffix(".weight")
            wanted = {"mean": 3 * first[n], "unit": 1 / math.sqrt(fan_in[n]), "init": first[n]}[scale]
            assert float(B.abs().mean()) == pytest.approx(wanted, rel=1e-6)
            assert torch.equal(B.sign(), W.sign())


def test_a_weight_of_zero_sends_nothing():
    applied, *_ = built("sign_fa", "mlp")
    layer = applied.net.stem if isinstance(applied.net.stem, nn.Linear) else applied.net.head
    with torch.no_grad():
        layer.weight[:, 0] = 0
    B = carried(layer)
    assert not B[:, 0].any()
    assert B[:, 1:].all()


@pytest.mark.parametrize("name", NETS)
def test_an_exact_head_is_left_to_backprop(name):
    applied, plain, x, y = built("sign_fa", name, head="exact")
    head = {"mlp": "head", "vit": "head", "conv": "7"}[name]
    assert head not in layers_with_feedback(applied.net)
    seen = observe(applied.net, applied, x, y)
    torch.testing.assert_close(seen.credits[-1], seen.exact[-1], rtol=1e-11, atol=1e-13)
    assert relative_error(gradients(applied, x, y), backprop(plain, x, y)) > 0.01


def magnitudes(net: nn.Module) -> dict[str, torch.Tensor]:
    return {n: layer.feedback.clone() for n, layer in layers_with_feedback(net).items()}


def test_br_draws_other_magnitudes_at_every_step_and_none_while_measuring():
    applied, _, x, y = built("sign_fa", "mlp", variant="br")
    drawn = [magnitudes(applied.net)]
    for _ in range(5):
        before = {n: t.clone() for n, t in applied.net.state_dict().items()}
        first, second = (observe(applied.net, applied, x, y) for _ in range(2))
        assert all(torch.equal(t, before[n]) for n, t in applied.net.state_dict().items())
        assert all(torch.equal(a, b) for a, b in zip(first.credits, second.credits, strict=True))
        found = gradients(applied, x, y)
        drawn.append(magnitudes(applied.net))
        told = observe(applied.net, applied, x, y)  # by what the step drew
        for n, g in {**told.exact_weights, **told.rule_weights}.items():
            torch.testing.assert_close(g / len(x), found[n], rtol=1e-11, atol=1e-14)
    for n in drawn[0]:
        each = torch.stack([one[n] for one in drawn]).flatten(1)
        assert (each > 0).all()
        distances = torch.pdist(each)
        assert float(distances.min()) > 0.3 * math.sqrt(each.shape[1])
    sizes = [one.flatten() for one in drawn[-1].values() if one.numel() >= 24]
    assert not any(torch.allclose(sizes[0][:24], other[:24]) for other in sizes[1:])


def test_magnitudes_of_br_neither_grow_nor_shrink_over_a_long_run():
    """Half-normal of mean 1: of the second moment π/2, and uncorrelated from step to step."""
    net, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double(), torch.randn(4, 6).double()
    applied = apply("sign_fa", net, x, ["1"], variant="br")
    buffers, seen = dict(net.named_buffers()), []
    for _ in range(4000):
        for name, new in applied.next_memories().items():
            buffers[name].copy_(new)
        seen.append(net[0].feedback.clone().flatten())
    each = torch.stack(seen)
    torch.testing.assert_close(each.mean(1), torch.ones(4000).double(), rtol=1e-6, atol=0)
    # each is divided by the mean of its 30 numbers, which costs 1/30 of the spread
    assert float(each.var()) == pytest.approx((math.pi / 2 - 1) * (1 - 1 / 30), rel=0.03)
    centred = each - 1
    lagged = float((centred[1:] * centred[:-1]).mean() / centred.square().mean())
    assert abs(lagged) < 4 / math.sqrt(each.numel())


def test_fr_and_u_keep_what_they_drew():
    for variant in ("u", "fr"):
        applied, _, x, y = built("sign_fa", "mlp", variant=variant)
        before = magnitudes(applied.net)
        for _ in range(3):
            applied.backward(x, lambda output, y=y: row_errors(output, y))
        assert all(torch.equal(b, before[n]) for n, b in magnitudes(applied.net).items())
        assert not any(name.endswith("counter") for name in applied.net.state_dict())


def test_magnitudes_differ_between_seeds_and_are_the_same_for_one():
    drawn = [magnitudes(built("sign_fa", "mlp", variant="fr")[0].net)]
    for seed in (0, 1):
        net, x, _ = draw("mlp")
        drawn.append(magnitudes(apply("sign_fa", net, x, NETS["mlp"][2], seed, variant="fr").net))
    for n in drawn[0]:
        assert torch.equal(drawn[0][n], drawn[1][n])
        assert not torch.allclose(drawn[0][n], drawn[2][n])


def test_options_that_there_are_not():
    for option in ({"variant": "b"}, {"scale": "large"}, {"head": "random"}):
        with pytest.raises(cs.CreditscopeError, match=repr(next(iter(option.values())))):
            rule_class("sign_fa")(**option)
