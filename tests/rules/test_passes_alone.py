"""What one seed alone does by cheaper means is what a stack of seeds does by `torch.func`."""

import pytest
import torch
from torch import nn
from torch.func import grad, vjp

import creditscope as cs
from creditscope.rng import gaussians_of_many, hashed_gaussians, salt_of
from creditscope.rules._pass import Forward, draw_counter, gaussian_probe, gaussian_probes, gradient, pull_back
from creditscope.rules._small_nets import adam, draw_moments

A, B = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)


class Pair(nn.Module):
    """A block that gives more than its state."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x), "rest"


class PairNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(4, 4), Pair(), nn.Linear(4, 2)

    def forward(self, x):
        h, rest = self.block(self.stem(x))
        assert rest == "rest"
        return self.head(h)


def plain_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))


def test_a_gradient_is_that_of_torch_func():
    at = {"a": [A], "b": B, "unused": torch.ones(2)}

    def function(tree):
        return (tree["a"][0] @ tree["b"]).tanh().sum()

    ours, theirs = gradient(function, at), grad(function)(at)
    assert ours.keys() == theirs.keys()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-15)
    assert not ours["unused"].any()


def test_a_gradient_of_what_depends_on_nothing_is_zero():
    assert not gradient(lambda x: A.sum(), B).any()


def test_a_gradient_can_be_differentiated_again():
    def slopes(inner, **options):
        def outer(w):
            return inner(lambda x: (w * x.square()).sum(), B, **options).square().sum()

        return outer

    ours = gradient(slopes(gradient, create_graph=True), A[0])
    torch.testing.assert_close(ours, 2 * A[0] * (2 * B).square())  # d/dw (2wx)²


def test_what_is_pulled_back_is_a_vjp():
    def function(x, y):
        return x * y, x.sin()

    told = (B, A[0])
    ours, theirs = pull_back(function, (A[1], A[2]), told), vjp(function, A[1], A[2])[1](told)
    torch.testing.assert_close(tuple(ours), theirs)


@torch.no_grad()
def test_another_pass_keeps_no_graph_and_leaves_the_net_as_it_was():
    net, x = plain_net(), torch.randn(5, 4)
    with torch.enable_grad():
        found = Forward(net, ["0", "1"], x)(shift=[torch.ones(5, 4), torch.zeros(5, 4)])
    assert not found.output.requires_grad
    torch.testing.assert_close(found.output, net[2](net[1](net[0](x) + 1)))
    assert not any(module._forward_hooks or "forward" in vars(module) for module in net.modules())


@pytest.mark.parametrize(
    ("net", "taps", "alone", "runs"),
    [(plain_net, ["0", "1"], True, 0), (plain_net, ["0", "1"], False, 1), (PairNet, ["stem", "block"], False, 1)],
)
def test_the_head_alone(net, taps, alone, runs):
    """Blocks are run only where what they give cannot be put together without it."""
    net, x, h, ran = net(), torch.randn(5, 4), torch.randn(5, 4), []
    forward = Forward(net, taps, x, states=[torch.zeros(5, 4)] * 2 if alone else None)
    whole = forward(at=[None, h]).output
    inner = net.get_submodule(taps[1]).inner if taps[1] == "block" else net[1][0]
    inner.register_forward_pre_hook(lambda *_: ran.append(1))
    assert torch.equal(forward.head(h), whole)
    assert len(ran) == runs


@pytest.mark.parametrize(("alone", "inputs", "runs"), [(True, None, 0), (False, None, 1), (True, B.float(), 1)])
@pytest.mark.parametrize("given", [{}, {"shift": [torch.ones(4)] * 2}, {"at": [torch.ones(4), None]}])
def test_the_stem_is_not_run_again_at_the_step_s_own_inputs(alone, inputs, runs, given):
    net, x, ran = plain_net(), torch.randn(5, 4), []
    net[0] = nn.Sequential(net[0])
    with torch.no_grad():
        states = [net[0](x), net[1](net[0](x))]
        wanted = Forward(net, ["0", "1"], x)(inputs, **given)
        net[0][0].register_forward_pre_hook(lambda *_: ran.append(1))
        found = Forward(net, ["0", "1"], x, states=states if alone else None)(inputs, **given)
    assert len(ran) == runs
    assert torch.equal(found.output, wanted.output)
    assert all(map(torch.equal, found.states, wanted.states))


def test_what_a_hook_of_the_users_made_of_the_stem_is_not_made_twice():
    net, x = plain_net(), torch.randn(5, 4)
    net[0].register_forward_hook(lambda _, __, output: 2 * output)
    with torch.no_grad():
        states = [net[0](x), net[1](net[0](x))]
        for given in ({}, {"shift": [torch.ones(4)] * 2}, {"at": [torch.ones(4), None]}):
            found = Forward(net, ["0", "1"], x, states=states)(**given)
            assert torch.equal(found.states[0], states[0])
            assert torch.equal(found.output, Forward(net, ["0", "1"], x)(**given).output)


@torch.no_grad()
def test_a_module_that_works_in_place_does_not_change_the_step_s_own_state():
    net, x = plain_net(), torch.randn(5, 4)
    net[1] = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4))
    h = net[0](x)
    kept = h.clone()
    for given in ({}, {"shift": [None, torch.ones(4)]}):
        Forward(net, ["0", "1"], x, states=[h, net[1](h.clone())])(**given)
        assert torch.equal(h, kept)


@pytest.mark.parametrize("rule", ["pc", "ep", "forward_gradient", "fdfa"])
def test_training_runs_the_stem_once_a_step(rule):
    """Whatever was hooked to find the states is gone when the rule asks for passes of its own."""
    net, x, y, ran = plain_net(), torch.randn(6, 4), torch.arange(6) % 2, []
    net[0] = nn.Sequential(net[0])
    learner = cs.attach(net, rule=rule, taps="1", stem="0", inputs=x)
    net[0][0].register_forward_pre_hook(lambda *_: ran.append(1))
    for _ in range(2):
        learner.backward(x, y)
    assert len(ran) == 2


def test_a_forward_of_the_users_own_is_put_back():
    net, x = plain_net(), torch.randn(5, 4)

    def doubled(x):
        return 2 * x

    net[1].forward = doubled
    Forward(net, ["0", "1"], x, states=[x, x]).head(x)
    assert net[1].forward is doubled
    assert "forward" not in vars(net[0])


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 4e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("shape", [(128, 40), (7, 3), (1,)])
def test_gaussians_of_many_are_those_of_each(dtype, off, shape):
    counters = [draw_counter(torch.Generator().manual_seed(i)) + torch.tensor([0, i]) for i in range(3)]
    found = gaussians_of_many(counters, [2, 0, 5], shape, dtype)
    for counter, place, numbers in zip(counters, [2, 0, 5], found, strict=True):
        assert numbers.dtype == dtype
        each = hashed_gaussians(salt_of(counter[0], counter[1], place), shape, dtype)
        torch.testing.assert_close(numbers, each, rtol=0, atol=off)


@pytest.mark.parametrize("shape", [(128, 40), (7, 3), (1,)])
def test_in_a_map_they_are_those_of_each_seed_to_the_bit(shape):
    counters = torch.stack([draw_counter(torch.Generator().manual_seed(i)) + torch.tensor([0, i]) for i in range(4)])
    found = torch.vmap(lambda own: tuple(gaussians_of_many([own, own + 1], [3, 3], shape, torch.float32)))(counters)
    for own, first, second in zip(counters, *found, strict=True):
        assert torch.equal(first, hashed_gaussians(salt_of(own[0], own[1], 3), shape, torch.float32))
        assert torch.equal(second, hashed_gaussians(salt_of(own[0] + 1, own[1] + 1, 3), shape, torch.float32))


def test_probes_of_all_taps_are_those_of_each():
    counter, like = (
        draw_counter(torch.Generator().manual_seed(0)),
        [torch.zeros(5, 4), torch.zeros(2), torch.zeros(5, 4)],
    )
    for place, (h, probe) in enumerate(zip(like, gaussian_probes(counter, like), strict=True)):
        torch.testing.assert_close(probe, gaussian_probe(counter, h.shape, h.dtype, place), rtol=0, atol=4e-6)


def test_adam_of_one_seed_is_that_of_a_stack():
    weights = {"A": [torch.randn(2, 3, 4, dtype=torch.float64)], "b": torch.randn(2, 3, dtype=torch.float64)}
    slopes = {"A": [torch.randn(2, 3, 4, dtype=torch.float64)], "b": torch.randn(2, 3, dtype=torch.float64)}
    moments = draw_moments(weights) | {"steps": torch.tensor([0.0, 4.0])}
    mapped = torch.vmap(lambda w, g, m: adam(w, g, m, 0.1, 0.3))(weights, slopes, moments)
    for seed in range(2):
        mine = [{"A": [t["A"][0][seed]], "b": t["b"][seed]} for t in (weights, slopes)]
        own = draw_moments(mine[0]) | {"steps": moments["steps"][seed]}
        moved, after = adam(*mine, own, 0.1, 0.3)
        torch.testing.assert_close(moved["A"][0], mapped[0]["A"][0][seed], rtol=1e-14, atol=1e-15)
        torch.testing.assert_close(after["second"]["b"], mapped[1]["second"]["b"][seed], rtol=1e-14, atol=1e-15)


def deeper(blocks: int = 2) -> nn.Sequential:
    hidden = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(blocks)]
    return nn.Sequential(nn.Linear(4, 8), *hidden, nn.Linear(8, 3))


X, Y = torch.randn(20, 4), torch.arange(20) % 3


class ByBackward(cs.TapRule):
    """A rule that differentiates as people do in a loop."""

    passes = 3.0

    def credit(self, ctx):
        with torch.enable_grad():
            shifts = [torch.zeros_like(h).requires_grad_() for h in ctx.states]
            ctx.loss(ctx.forward(shift=shifts).output).sum().backward()
        return [torch.as_tensor(shift.grad) for shift in shifts]


class ByFunction(ByBackward):
    def credit(self, ctx):
        return grad(lambda s: ctx.loss(ctx.forward(shift=s).output).sum())([torch.zeros_like(h) for h in ctx.states])


def test_a_backward_of_the_rules_own_does_not_reach_the_weights():
    found = []
    for rule in (ByBackward, ByFunction):
        torch.manual_seed(0)
        net = deeper()
        cs.attach(net, rule, stem="0", taps=["1", "2"]).backward(X, Y)
        found.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(*found)
    net = deeper()
    cs.watch(net, stem="0", taps=["1", "2"], credit=ByBackward().credit).snapshot(X, Y)
    assert all(p.grad is None for p in net.parameters())


def test_what_a_pass_is_given_within_a_dictionary_is_differentiated_too():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Linear(4, 2)

        def forward(self, given):
            return self.block(given["x"])

    x = torch.ones(5, 4, requires_grad=True)
    Forward(Inner(), ["block"], ({"x": x},))().output.sum().backward()
    assert x.grad is not None


class Counting(nn.Linear):
    """A layer that puts another tensor in the place of its buffer in every forward."""

    def __init__(self):
        super().__init__(8, 8)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, input):
        self.seen = self.seen + 1
        return super().forward(input)


@pytest.mark.parametrize("rule", ["pc", "dtp", "dni"])
def test_further_passes_leave_buffers_as_they_are(rule):
    net = nn.Sequential(nn.Linear(4, 8), Counting(), nn.Linear(8, 8), nn.Linear(8, 3))
    trainer = cs.attach(net, rule, stem="0", taps=["1", "2"])
    before = float(net[1].seen)
    for _ in range(3):
        trainer.backward(X, Y)
    assert float(net[1].seen) - before == 3


@pytest.mark.parametrize("rule", ["dtp", "dni", "ldrl", "local", "pc"])
def test_one_tap_is_enough(rule):
    net = deeper(0)
    cs.attach(net, rule, taps="0").backward(X, Y)
    assert all(p.grad is not None for p in net.parameters())


def test_a_rule_may_learn_nothing():
    class Nothing(cs.TapRule):
        learns_feedback = True

        def credit(self, ctx):
            return [torch.ones_like(h) for h in ctx.states]

    class NoLayer(cs.WeightRule):
        needs_feedback, learns_feedback = True, True

        def draw_memory(self, layer, generator):
            return None

    for rule in (Nothing, NoLayer):
        cs.attach(deeper(), rule, stem="0", taps=["1", "2"]).backward(X, Y)


def test_the_weights_of_a_pass_can_be_looked_at():
    class Sees(cs.TapRule):
        def credit(self, ctx):
            weight = ctx.forward.tensors["3.weight"]
            assert not weight.requires_grad
            return [ctx.error @ weight[:, : h.shape[1]] for h in ctx.states]

    cs.attach(deeper(), Sees, stem="0", taps=["1", "2"]).backward(X, Y)


def test_noise_of_a_format_that_numpy_lacks():
    numbers = gaussians_of_many([draw_counter(torch.Generator().manual_seed(0))], [0], (64,), torch.bfloat16)[0]
    assert numbers.dtype == torch.bfloat16
    assert 0.7 < float(numbers.float().std()) < 1.3


def test_memories_do_not_learn_in_half_precision():
    torch.manual_seed(0)
    net = deeper()
    trainer = cs.attach(net, "wm", stem="0", taps=["1", "2"])
    with torch.autocast("cpu", torch.float16):
        trainer.backward(X, Y)
    memory = net[1][0].feedback
    assert memory.dtype == torch.float32
    assert not torch.equal(memory, memory.half().float())


def test_targets_of_32_bits():
    cs.attach(deeper(), "local", stem="0", taps=["1", "2"]).backward(X, Y.int())
