"""Models converted and restored: the same layers, parameters, hooks and ties; copies; layers of one's own; refusals."""

import copy
import io
import pickle

import pytest
import torch
from feedback_nets import NETS, apply, backprop, built, draw, gradients, relative_error
from torch import nn
from torch.nn.utils import prune

import creditscope as cs
from creditscope.anatomy import examine
from creditscope.errors import CreditscopeError
from creditscope.rng import generator
from creditscope.rules import (
    FeedbackLinear,
    LinearWithFeedback,
    WithFeedback,
    apply_rule,
    layers_with_feedback,
    register_feedback,
    rule_class,
    transport_of,
)
from creditscope.rules._layers import FORMS

RULES = {"fa": {}, "sign_fa": {"variant": "br"}, "kp": {}, "wm": {}}
pytestmark = pytest.mark.usefixtures("own_stream")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", NETS)
def test_restored_is_plain_again(rule, name):
    net, x, y = draw(name)
    plain, modules = copy.deepcopy(net), dict(net.named_modules())
    applied = apply(rule, net, x, NETS[name][2], **RULES[rule])
    assert [type(m) for m in net.modules()] != [type(m) for m in plain.modules()]
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    gradients(applied, x, y)
    optimiser.step()
    trained = {n: p.detach().clone() for n, p in net.named_parameters()}
    held = list(net.parameters())
    assert cs.restore(net) is net
    assert {n: id(m) for n, m in net.named_modules()} == {n: id(m) for n, m in modules.items()}
    assert [type(m) for m in net.modules()] == [type(m) for m in plain.modules()]
    assert list(net.state_dict()) == list(plain.state_dict())
    assert all(a is b for a, b in zip(net.parameters(), held, strict=True))  # an optimiser still has hold of them
    for n, p in net.named_parameters():
        assert torch.equal(p, trained[n])
        assert "attention.k.bias" in n or not torch.equal(p, plain.get_parameter(n)), n
    plain.load_state_dict(net.state_dict())
    assert relative_error(backprop(net, x, y), backprop(plain, x, y)) == 0
    apply("fa", net, x, NETS[name][2])  # and can be converted again


def test_what_is_done_to_a_converted_model_is_done_to_the_restored_one():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    cs.convert(net, "fa", taps="1", inputs=torch.randn(5, 4))
    net.eval().double().requires_grad_(False)
    net[2].weight = nn.Parameter(torch.ones(3, 4).double())
    net.load_state_dict({n: t + 1 for n, t in net.state_dict().items()})
    kept = {n: p.clone() for n, p in net.named_parameters()}
    cs.restore(net)
    assert not any(m.training for m in net.modules())
    assert {n: (p.dtype, p.requires_grad) for n, p in net.named_parameters()} == {
        n: (torch.float64, n == "2.weight") for n in kept
    }
    assert all(torch.equal(p, kept[n]) for n, p in net.named_parameters())
    assert torch.equal(net[2].weight, torch.full((3, 4), 2.0).double())


def count_hooks(net: nn.Module) -> tuple[list[str], list]:
    hits: list[str] = []
    layer = net[2]
    handles = [
        layer.register_forward_hook(lambda m, a, o: hits.append("forward")),
        layer.register_forward_hook(lambda m, a, k, o: hits.append("forward, keywords"), with_kwargs=True),
        layer.register_forward_hook(lambda m, a, o: hits.append("always"), always_call=True),
        layer.register_forward_pre_hook(lambda m, a: hits.append("before")),
        layer.register_forward_pre_hook(lambda m, a, k: hits.append("before, keywords"), with_kwargs=True),
        layer.register_full_backward_hook(lambda m, i, o: hits.append("backward")),
        layer.register_full_backward_pre_hook(lambda m, o: hits.append("before backward")),
    ]
    return hits, handles


def test_all_hooks_are_kept_and_can_be_taken_off():
    def net_and_hooks():
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
        return net, *count_hooks(net)

    x = torch.randn(5, 4)
    net, hits, handles = net_and_hooks()
    net(x).sum().backward()
    wanted = list(hits)
    assert len(wanted) == 7
    cs.convert(net, "fa", taps=["1", "3"], inputs=x)
    hits.clear()
    net(x).sum().backward()
    assert hits == wanted
    net[2].register_forward_hook(lambda *_: hits.append("later"))  # on the converted layer, and kept as well
    cs.restore(net)
    hits.clear()
    net(x).sum().backward()
    assert sorted(hits) == sorted([*wanted, "later"])
    cs.convert(net, "fa", taps=["1", "3"], inputs=x)
    for handle in handles:
        handle.remove()
    hits.clear()
    net(x).sum().backward()
    assert hits == ["later"]


class Tied(nn.Module):
    """A layer used twice under two names, and two layers that share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.inner = nn.Linear(4, 4), nn.ModuleList([nn.Linear(4, 4)])
        self.again = self.first
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.inner[0].weight

    def forward(self, x):
        return self.head(torch.tanh(self.inner[0](torch.tanh(self.again(torch.tanh(self.first(x)))))))


@pytest.mark.parametrize("rule", RULES)
def test_tied_layers_stay_tied(rule):
    net, x, y = Tied().double(), torch.randn(6, 4).double(), torch.randint(4, (6,))
    names, plain = list(net.state_dict()), copy.deepcopy(net)
    applied = apply(rule, net, x, ["inner.0"], **RULES[rule])
    assert net.again is net.first
    assert isinstance(net.first, FeedbackLinear)
    assert net.head.weight is net.inner[0].weight
    assert set(layers_with_feedback(net)) == {"first", "inner.0", "head"}
    assert relative_error(gradients(applied, x, y), backprop(plain, x, y)) > 1e-3
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    cs.restore(net)
    assert (net.again is net.first, net.head.weight is net.inner[0].weight) == (True, True)
    assert list(net.state_dict()) == names
    assert not torch.equal(net.head.weight, plain.head.weight)


def in_memory(net: nn.Module) -> nn.Module:
    stored = io.BytesIO()
    torch.save(net, stored)
    stored.seek(0)
    return torch.load(stored, weights_only=False)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net)), in_memory])
def test_copies_of_a_converted_model_are_models_of_their_own(copy_of, rule):
    applied, plain, x, y = built(rule, "conv", **RULES[rule])
    net, twin = applied.net, copy_of(applied.net)
    assert list(twin.state_dict()) == list(net.state_dict())
    switch = transport_of(twin)
    assert switch is not None
    assert switch is not transport_of(net)
    assert all(layer.transport is switch for layer in layers_with_feedback(twin).values())
    loss = nn.functional.cross_entropy
    alike = (torch.autograd.grad(loss(one(x), y), list(one.parameters())) for one in (net, twin))
    assert all(torch.equal(a, b) for a, b in zip(*alike, strict=True))
    with torch.no_grad():
        for p in twin.parameters():
            p.add_(1)
    assert all(torch.equal(p, plain.get_parameter(n)) for n, p in net.named_parameters())
    with switch.exactly():
        assert not transport_of(net).exact
    cs.restore(twin)
    assert [type(m) for m in twin.modules()] == [type(m) for m in plain.modules()]
    assert all(torch.equal(p, plain.get_parameter(n) + 1) for n, p in twin.named_parameters())
    assert layers_with_feedback(net)


def test_a_rule_that_hands_out_the_weight_itself_gets_a_copy():
    class Once(cs.WeightRule):
        label, needs_feedback = "once", True

        def draw_memory(self, layer, generator):
            return layer.weight

    net, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)), torch.randn(5, 4)
    apply_rule(Once(), net, ("1",), x, generator(0, "feedback"))
    before = net[2].weight.detach().clone()
    with torch.no_grad():
        net[2].weight.add_(1)
    assert torch.equal(net[2].feedback, before)


class Gated(nn.Module):
    """y = s ∘ (x Wᵀ) with a mask that is a buffer, and a norm of its own before it."""

    def __init__(self):
        super().__init__()
        self.weight, self.norm = nn.Parameter(torch.randn(5, 4)), nn.LayerNorm(4)
        self.register_buffer("mask", torch.tensor([1.0, 0, 1, 1, 0]))

    def forward(self, x):
        return self.mask * (self.norm(x) @ self.weight.T)


@pytest.fixture
def gated():
    @register_feedback(Gated)
    class FeedbackGated(WithFeedback):
        def forward(self, x):
            return self.mask * LinearWithFeedback.apply(self.norm(x), self.weight, None, self.feedback, self.transport)

    yield FeedbackGated
    del FORMS[Gated]


def test_a_layer_of_ones_own(gated):
    net, x = nn.Sequential(nn.Linear(3, 4), Gated(), nn.Linear(5, 2)).double(), torch.randn(6, 3).double()
    plain, names = copy.deepcopy(net), list(net.state_dict())
    applied = apply("kp", net, x, ["0", "1"])
    assert isinstance(net[1], gated)
    assert torch.equal(net(x), plain(x))
    y = torch.randint(2, (6,))
    assert relative_error(gradients(applied, x, y), backprop(plain, x, y)) > 0.01
    for layer in layers_with_feedback(net).values():
        layer.feedback.copy_(layer.weight.detach())
    assert relative_error(gradients(applied, x, y), backprop(plain, x, y)) < 1e-12
    net.float().load_state_dict({**net.state_dict(), "1.mask": torch.ones(5)})
    cs.restore(net)
    assert list(net.state_dict()) == names
    assert net[1].mask.dtype == torch.float32
    assert net[1].mask.tolist() == [1] * 5


def test_a_layer_of_ones_own_is_refused_until_it_is_known():
    net, x = nn.Sequential(nn.Linear(3, 4), Gated(), nn.Linear(5, 2)), torch.randn(6, 3)
    with pytest.raises(CreditscopeError, match=r"'1\.weight' of shape \(5, 4\) belongs to a Gated.*register_feedback"):
        cs.convert(net, "fa", taps="1", inputs=x)
    assert type(net[0]) is nn.Linear


def own_forward(layer: nn.Module) -> nn.Module:
    layer.forward = lambda x, forward=layer.forward: forward(x)
    return layer


REFUSED = {
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), r"plain weight in 'body\.0'"),
    "weight_norm of a kernel": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (4, 1, 1)), nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1)), nn.Flatten()
        ),
        r"plain weight in 'body\.0\.1'",
    ),
    "spectral_norm": (lambda: nn.utils.spectral_norm(nn.Linear(4, 4)), r"plain weight in 'body\.0'"),
    "spectral_norm, newer": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), r"weight in 'body\.0'"),
    "pruned": (lambda: prune.random_unstructured(nn.Linear(4, 4), "weight", 0.5), r"plain weight in 'body\.0'"),
    "a forward of its own": (lambda: own_forward(nn.Linear(4, 4)), r"forward of its class in 'body\.0'"),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8), r"'body\.0\.self_attn' is an nn\.MultiheadAttention"),
    "recurrent": (lambda: nn.Sequential(nn.RNN(4, 4), First()), r"'body\.0\.0\.weight_ih_l0' of shape \(4, 4\).* RNN"),
}


class First(nn.Module):
    def forward(self, x):
        return x[0]


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_stay_on_backprop_is_refused_by_name_and_nothing_is_changed(case):
    make, message = REFUSED[case]
    net = nn.Sequential()
    net.stem, net.body, net.head = nn.Linear(4, 4), nn.Sequential(make(), nn.Tanh()), nn.Linear(4, 3)
    types = [type(m) for m in net.modules()]
    with pytest.raises(CreditscopeError, match=message):
        cs.convert(net, "fa", taps="body", inputs=torch.randn(5, 4))
    assert [type(m) for m in net.modules()] == types


def test_a_bare_layer_is_refused():
    anatomy = examine(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), ("0",), torch.randn(5, 4))
    for layer in (nn.Linear(4, 3), nn.Conv2d(1, 2, 3)):
        with pytest.raises(CreditscopeError, match=rf"bare {type(layer).__name__}.*nn\.Sequential"):
            rule_class("fa")().convert(layer, anatomy, generator(0, "feedback"))


def test_feedback_of_another_shape_is_refused_by_name():
    class Wrong(cs.WeightRule):
        label, needs_feedback = "wrong", True

        def draw_memory(self, layer, generator):
            return layer.weight.T

    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    with pytest.raises(CreditscopeError, match=r"\(6, 4\) for '0', but got \(4, 6\)"):
        apply_rule(Wrong(), net, ("1",), torch.randn(5, 4), generator(0, "feedback"))
    assert type(net[0]) is nn.Linear
