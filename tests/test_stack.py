"""Many seeds as one net: outputs, gradients, states and buffers are those of the nets one by one."""

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope import stacked_functions
from creditscope.graph import Adjacency
from creditscope.losses import cross_entropy_errors, errors_function, row_errors
from creditscope.measure.numerics import quartiles_where
from creditscope.nets.gcn import GCN
from creditscope.nets.resmlp import ResMLP
from creditscope.nets.vit import ViT
from creditscope.rng import generator
from creditscope.rules import FeedbackLinear, apply_rule, rule_class, transport_of
from creditscope.stack import PerSeed, StackedNet, call_net, pattern_of
from creditscope.stacked_functions import (
    OneForAll,
    StackedFunctions,
    linear,
    product_over_rows,
    stacked_attention,
    stacked_layer_norm,
    stacked_linear,
    sum_over_rows,
)
from creditscope.taps import cut_forward, resolve_taps, watch_forward
from creditscope.tasks import load_task

SEEDS = 3


@pytest.fixture(autouse=True)
def own_stream():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(params=["few rows", "many rows"])
def either_path(request, monkeypatch):
    """The sums over rows taken at once, and in parts with rows left over."""
    if request.param == "many rows":
        monkeypatch.setattr(linear, "PARTS", 4)
        monkeypatch.setattr(linear, "_many_rows", lambda x: x.ndim == 3)


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


def assert_alike(stacked: Callable[..., Tensor], plain: Callable[..., Tensor], *tensors: Tensor | None) -> None:
    """One call on all seeds gives the outputs and the gradients of one call for each."""
    output = stacked(*tensors)
    delta = torch.randn_like(output)
    found = torch.autograd.grad(output, [t for t in tensors if t is not None], delta)
    for seed in range(SEEDS):
        own = [t if t is None else t[seed].detach().requires_grad_() for t in tensors]
        alone = plain(*own)
        close(output[seed], alone)
        wanted = torch.autograd.grad(alone, [t for t in own if t is not None], delta[seed])
        for g, w in zip(found, wanted, strict=True):
            close(g[seed], w)


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("rows", [(10,), (8,), (7, 5)], ids=["rows", "whole parts", "tokens"])
def test_linear_is_that_of_every_seed(rows, bias):
    tensors = leaf(SEEDS, *rows, 6), leaf(SEEDS, 4, 6), leaf(SEEDS, 4) if bias else None
    assert_alike(stacked_linear, functional.linear, *tensors)


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)])
def test_linear_gives_the_gradients_that_are_asked_for(needed):
    tensors = [t.requires_grad_(n) for t, n in zip((leaf(2, 5, 3), leaf(2, 4, 3), leaf(2, 4)), needed, strict=True)]
    stacked_linear(*tensors).sum().backward()
    assert tuple(t.grad is not None for t in tensors) == needed


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("rows", [(10,), (8,), (7, 5)], ids=["rows", "whole parts", "tokens"])
def test_layer_norm_is_that_of_every_seed(rows):
    def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, [6], weight, bias, 1e-3)

    def stacked(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return stacked_layer_norm(x, (6,), weight, bias, 1e-3)

    assert_alike(stacked, plain, leaf(SEEDS, *rows, 6), leaf(SEEDS, 6), leaf(SEEDS, 6))


@pytest.mark.parametrize(("weight", "bias"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [(6,), (5, 6)], ids=["features", "tokens and features"])
def test_layer_norm_without_gain_or_shift_or_over_tokens_too(shape, weight, bias):
    tensors = leaf(SEEDS, 7, 5, 6), leaf(SEEDS, *shape) if weight else None, leaf(SEEDS, *shape) if bias else None
    assert_alike(
        lambda x, w, b: stacked_layer_norm(x, shape, w, b),
        lambda x, w, b: functional.layer_norm(x, shape, w, b),
        *tensors,
    )


def test_layer_norm_over_tokens_and_features_with_both():
    tensors = leaf(SEEDS, 7, 5, 6), leaf(SEEDS, 5, 6), leaf(SEEDS, 5, 6)
    assert_alike(
        lambda x, w, b: stacked_layer_norm(x, (5, 6), w, b),
        lambda x, w, b: functional.layer_norm(x, (5, 6), w, b),
        *tensors,
    )


def test_attention_is_that_of_every_seed():
    tensors = leaf(SEEDS, 4, 2, 5, 3), leaf(SEEDS, 4, 2, 7, 3), leaf(SEEDS, 4, 2, 7, 3)
    assert_alike(stacked_attention, functional.scaled_dot_product_attention, *tensors)


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("rows", [4, 8, 9, 11])
def test_products_and_sums_over_rows(rows):
    delta, x = leaf(SEEDS, rows, 3).detach(), leaf(SEEDS, rows, 5).detach()
    products, sums = product_over_rows(delta, x), sum_over_rows(delta)
    for seed in range(SEEDS):
        close(products[seed], torch.einsum("no,ni->oi", delta[seed], x[seed]))
        close(sums[seed], delta[seed].sum(0))
        close(product_over_rows(delta[seed], x[seed]), products[seed])
        close(sum_over_rows(delta[seed]), sums[seed])


class TestOneForAll:
    def test_the_function_is_called_once_on_plain_tensors_with_the_seeds_first(self):
        seen = []

        def scaled(x: Tensor, y: Tensor, factor: float) -> Tensor:
            seen.append((x.shape, y.stride()))
            return x * y * factor

        x, y = leaf(SEEDS, 5).detach(), leaf(5).detach()
        found = torch.vmap(lambda own: OneForAll.apply(scaled, own, y, 2.0))(x)
        close(found, x * y * 2)
        assert seen == [((SEEDS, 5), (0, 1))]

    def test_a_seed_axis_elsewhere_is_moved_to_the_front(self):
        x = leaf(5, SEEDS).detach()
        found = torch.vmap(lambda own: OneForAll.apply(lambda t: t[:, :2] + 1, own), in_dims=1)(x)
        close(found, x.T[:, :2] + 1)

    def test_gradients_flow_through_what_it_does(self):
        x = leaf(SEEDS, 5)
        (g,) = torch.autograd.grad(torch.vmap(lambda own: OneForAll.apply(torch.square, own))(x).sum(), x)
        close(g, 2 * x)

    def test_what_all_seeds_share_is_refused(self):
        shared = leaf(5).detach()
        with pytest.raises(RuntimeError, match="differs between seeds, but all seeds share it"):
            torch.vmap(lambda x: x + OneForAll.apply(torch.square, shared))(leaf(SEEDS, 5).detach())


class Attends(nn.Module):
    """Attention in the three ways a net may ask for it; only the plain one is fused."""

    def __init__(self, how: str):
        super().__init__()
        self.how, self.qkv = how, nn.Linear(6, 18)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, 3)).transpose(-3, -2) for t in self.qkv(x).chunk(3, -1))
        if self.how == "causal":
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.how == "masked":
            return functional.scaled_dot_product_attention(q, k, v, torch.eye(x.shape[-2], dtype=torch.bool))
        return functional.scaled_dot_product_attention(q, k, v)


class Asks(nn.Module):
    """A linear map and a layer norm called as functions, with what the caller names by keyword."""

    def __init__(self, call: Callable[["Asks", Tensor], Tensor]):
        super().__init__()
        self.call = call
        self.weight, self.bias = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self, x)


CALLS: dict[str, Callable[[Asks, Tensor], Tensor]] = {
    "all by place": lambda m, x: functional.linear(x, m.weight, m.bias),
    "bias named": lambda m, x: functional.linear(x, m.weight, bias=m.bias),
    "named in another order": lambda m, x: functional.linear(x, bias=m.bias, weight=m.weight),
    "one output": lambda m, x: functional.linear(x, m.weight[0]),
    "no rows": lambda m, x: functional.linear(x[0], m.weight, m.bias),
    "norm named": lambda m, x: functional.layer_norm(x, [6], bias=m.bias, weight=m.weight[0], eps=0.1),
    "norm without": lambda m, x: functional.layer_norm(x + m.bias, (6,)),
}


def nets_of(make: Callable[[], nn.Module]) -> list[nn.Module]:
    return [make().double() for _ in range(SEEDS)]


def assert_stack_alike(nets: Sequence[nn.Module], inputs: Tensor | tuple, *, per_seed: bool) -> None:
    """The stack's outputs and parameter gradients are those of the nets."""
    stack = StackedNet.of(nets)
    output = stack(PerSeed(inputs) if per_seed else inputs)
    delta = torch.randn_like(output)
    found = torch.autograd.grad(output, list(stack.parameters()), delta, allow_unused=True)
    for seed, net in enumerate(nets):
        alone = call_net(net, inputs[seed] if per_seed else inputs)
        close(output[seed], alone)
        wanted = torch.autograd.grad(alone, list(net.parameters()), delta[seed], allow_unused=True)
        for g, w in zip(found, wanted, strict=True):
            assert (g is None) == (w is None)
            if g is not None and w is not None:
                close(g[seed], w)


class TestStackedFunctions:
    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_functions_mean_what_they_mean_alone_however_they_are_called(self, call):
        assert_stack_alike(nets_of(lambda: Asks(call)), leaf(SEEDS, 7, 6).detach(), per_seed=True)

    @pytest.mark.filterwarnings("ignore:There is a performance drop")
    @pytest.mark.parametrize("how", ["plain", "causal", "masked"])
    def test_attention_of_any_kind(self, how):
        assert_stack_alike(nets_of(lambda: Attends(how)), leaf(SEEDS, 4, 5, 6).detach(), per_seed=True)

    def test_a_net_calls_them_once_for_all_seeds(self, monkeypatch):
        called = []
        for name in ("stacked_linear", "stacked_layer_norm", "stacked_attention"):
            original = getattr(stacked_functions, name)

            def counted(*args, name: str = name, original: Callable = original) -> Tensor:
                called.append((name, len(args[0])))
                return original(*args)

            monkeypatch.setattr(stacked_functions, name, counted)
        nets = nets_of(lambda: ViT((3, 8, 8), 4, depth=1, width=8, heads=2))
        StackedNet.of(nets)(leaf(2, 3, 8, 8).detach())
        wanted = ["stacked_linear"] * 8 + ["stacked_layer_norm"] * 3 + ["stacked_attention"]
        assert sorted(called) == sorted((name, SEEDS) for name in wanted)

    def test_outside_a_map_and_after_it_functions_are_torch_s_own(self):
        x, weight = leaf(5, 6).detach(), leaf(4, 6).detach()
        with pytest.raises(RuntimeError, match="all seeds share it"), StackedFunctions():
            functional.linear(x, weight)
        close(functional.linear(x, weight), x @ weight.T)


NETS: dict[str, Callable[[], nn.Module]] = {
    "resmlp": lambda: ResMLP((6,), 3, depth=2, width=5),
    "no affine": lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.LayerNorm(5, elementwise_affine=False)),
    "norm without bias": lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5, bias=False), nn.Linear(5, 2)),
    "convolution": lambda: nn.Sequential(nn.Unflatten(-1, (1, 6)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(1)),
}


class TestStackedNet:
    @pytest.mark.usefixtures("either_path")
    @pytest.mark.parametrize("per_seed", [True, False], ids=["own inputs", "shared inputs"])
    @pytest.mark.parametrize("make", NETS.values(), ids=NETS)
    def test_outputs_and_gradients_are_those_of_the_nets(self, make, per_seed):
        inputs = leaf(SEEDS, 9, 6).detach() if per_seed else leaf(9, 6).detach()
        assert_stack_alike(nets_of(make), inputs, per_seed=per_seed)

    @pytest.mark.usefixtures("either_path")
    @pytest.mark.parametrize("per_seed", [True, False], ids=["own inputs", "shared inputs"])
    def test_tokens(self, per_seed):
        inputs = leaf(SEEDS, 2, 3, 8, 8).detach() if per_seed else leaf(2, 3, 8, 8).detach()
        assert_stack_alike(nets_of(lambda: ViT((3, 8, 8), 4, depth=1, width=8, heads=2)), inputs, per_seed=per_seed)

    def test_several_arguments(self):
        task = load_task("sbm", nodes=160)
        adjacency = Adjacency.normalised(task.adjacency, dtype=torch.float64)
        inputs = torch.from_numpy(task.x).double(), adjacency
        assert_stack_alike(nets_of(lambda: GCN((32,), 4, width=5)), inputs, per_seed=False)

    def test_tensors_given_stand_in_for_its_own(self):
        nets, others = nets_of(NETS["resmlp"]), nets_of(NETS["resmlp"])
        x = leaf(9, 6).detach()
        given = {name: p for name, p in StackedNet.of(others).named_parameters() if name.startswith("blocks")}
        output = StackedNet.of(nets)(x, given)
        for seed in range(SEEDS):
            own = {name: p[seed] for name, p in given.items()}
            close(output[seed], call_net(nets[seed], x, own))
        assert not torch.allclose(output[0], nets[0](x))

    def test_one_net_can_be_a_stack(self):
        (net,) = nets_of(NETS["resmlp"])[:1]
        x = leaf(9, 6).detach()
        close(StackedNet.of([net])(x), net(x)[None])

    def test_each_hands_every_seed_its_own_share_and_none_stays_none(self):
        stack = StackedNet.of(nets_of(NETS["resmlp"]))
        x, per_seed, scale = leaf(4).detach(), leaf(SEEDS, 4).detach(), leaf(SEEDS).detach()

        def use(inputs: Tensor, scales: list[Tensor], nothing: None) -> tuple[Tensor, Tensor]:
            assert nothing is None
            return inputs * scales[0], inputs.sum()

        for given, wanted in ((x, x.expand(SEEDS, 4)), (PerSeed(per_seed), per_seed)):
            product, total = stack.each(use, given, [scale], None)
            close(product, wanted * scale[:, None])
            close(total, wanted.sum(-1))
        assert stack.each(lambda inputs, scale, nothing: (scale, nothing), x, scale, [])[1] == []

    def test_stacking_copies_and_keeps_what_is_frozen(self):
        nets = nets_of(NETS["resmlp"])
        for net in nets:
            net.get_parameter("stem.weight").requires_grad_(False)
        stack = StackedNet.of(nets)
        frozen = {name for name, p in stack.named_parameters() if not p.requires_grad}
        assert frozen == {"stem.weight"}
        with torch.no_grad():
            for p in stack.parameters():
                p.zero_()
        assert all(bool(p.any()) for net in nets for name, p in net.named_parameters() if name.endswith("1.weight"))

    def test_state_of_a_seed_loads_into_a_single_net(self):
        nets = nets_of(lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)))
        stack = StackedNet.of(nets)
        for seed, net in enumerate(nets):
            fresh = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)).double()
            fresh.load_state_dict(stack.state_of(seed))
            assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), net.parameters(), strict=True))
        view = stack.state_of(1)["0.weight"]
        with torch.no_grad():
            next(stack.parameters())[1] = 7
        assert bool((view == 7).all())
        assert not view.requires_grad

    def test_tied_weights_are_one_parameter_under_every_name(self):
        nets = nets_of(Tied)
        stack = StackedNet.of(nets)
        assert [name for name, _ in stack.named_parameters()] == ["first.weight", "first.bias", "second.bias"]
        assert_stack_alike(nets, leaf(SEEDS, 9, 4).detach(), per_seed=True)
        for seed, net in enumerate(nets):
            state = stack.state_of(seed)
            assert list(state) == list(net.state_dict())
            assert all(torch.equal(t, state[name]) for name, t in net.state_dict().items())
            assert state["first.weight"].data_ptr() == state["second.weight"].data_ptr()

    def test_buffers_can_be_one(self):
        nets = nets_of(lambda: nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4)))
        stack, shared = StackedNet.of(nets), torch.arange(12, dtype=torch.float64).view(3, 4)
        stack.share_buffers(["0.running_mean", "1.running_mean"], shared)
        assert all(b is shared for name, b in stack.named_buffers() if name.endswith("mean"))
        shared.mul_(2)
        assert stack.state_of(2)["1.running_mean"].tolist() == [16, 18, 20, 22]

    @pytest.mark.parametrize("per_seed", [True, False], ids=["own inputs", "shared inputs"])
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    def test_batch_norm_keeps_the_statistics_of_every_seed(self, training, per_seed):
        def make() -> nn.Module:
            return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))

        nets = nets_of(make)
        stack = StackedNet.of(nets)
        stack.train(training)
        for net in nets:
            net.train(training)
        assert pattern_of(stack).training == training
        x = leaf(SEEDS, 9, 6).detach() if per_seed else leaf(9, 6).detach()

        def outputs() -> tuple[Tensor, list[Tensor]]:
            return stack(PerSeed(x) if per_seed else x), [net(x[i] if per_seed else x) for i, net in enumerate(nets)]

        outputs()
        output, alone = outputs()
        close(output, torch.stack(alone))
        delta = torch.randn_like(output)
        found = torch.autograd.grad(output, list(stack.parameters()), delta)
        for seed, net in enumerate(nets):
            for (name, b), g in zip(net.named_parameters(), found, strict=True):
                (wanted,) = torch.autograd.grad(alone[seed], b, delta[seed], retain_graph=True)
                torch.testing.assert_close(g[seed], wanted, rtol=1e-9, atol=1e-11, msg=name)
            own = stack.state_of(seed)
            for name, b in net.named_buffers():
                torch.testing.assert_close(own[name], b, rtol=1e-12, atol=0, msg=name)
            assert int(own["1.num_batches_tracked"]) == 2 * training

    @pytest.mark.usefixtures("either_path")
    @pytest.mark.parametrize("exact", [True, False], ids=["exact", "feedback"])
    def test_feedback_matrices_carry_credit_down_in_every_seed(self, exact):
        applied = [converted(seed) for seed in range(SEEDS)]
        nets = [one.applied.net for one in applied]
        assert any(isinstance(m, FeedbackLinear) for m in nets[0].modules())
        switches = [transport_of(net) for net in nets]
        assert transport_of(StackedNet.of(nets)) is switches[0]
        for switch in switches:
            switch.exact = exact
        assert_stack_alike(nets, leaf(SEEDS, 9, 6).detach(), per_seed=True)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def converted(seed: int):
    net = ResMLP((6,), 3, depth=2, width=5).double()
    taps = resolve_taps(net, ["stem", "blocks.*"])
    return apply_rule(rule_class("fa")(), net, taps, leaf(4, 6).detach(), generator(seed, "feedback"))


class TestTaps:
    TAPS = ("stem", "blocks.0", "blocks.1")

    def inputs(self, per_seed: bool) -> tuple[Tensor | PerSeed, Callable[[int], Tensor]]:
        x = leaf(SEEDS, 9, 6).detach() if per_seed else leaf(9, 6).detach()
        return (PerSeed(x) if per_seed else x), (lambda seed: x[seed] if per_seed else x)

    @pytest.mark.parametrize("per_seed", [True, False], ids=["own inputs", "shared inputs"])
    def test_watched_states_and_their_gradients_are_those_of_the_nets(self, per_seed):
        nets = nets_of(NETS["resmlp"])
        stack, (x, own) = StackedNet.of(nets), self.inputs(per_seed)
        forward = watch_forward(stack, self.TAPS, x)
        delta = torch.randn_like(forward.output)
        found = torch.autograd.grad(forward.output, forward.states, delta)
        assert forward.order == self.TAPS
        for seed, net in enumerate(nets):
            alone = watch_forward(net, self.TAPS, own(seed))
            close(forward.output[seed], alone.output)
            wanted = torch.autograd.grad(alone.output, alone.states, delta[seed])
            for h, g, alone_h, w in zip(forward.states, found, alone.states, wanted, strict=True):
                close(h[seed], alone_h)
                close(g[seed], w)

    @pytest.mark.parametrize("shut", [True, False])
    def test_the_gate_shuts_the_taps_of_all_seeds(self, shut):
        nets = nets_of(NETS["resmlp"])
        stack, (x, own) = StackedNet.of(nets), self.inputs(True)
        forward = watch_forward(stack, self.TAPS, x)
        credits = [torch.randn_like(h) for h in forward.states]

        def gradients(seen, parameters: list, credits: list[Tensor]) -> tuple:
            if not shut:
                return torch.autograd.grad(seen.states, parameters, credits, allow_unused=True)
            with seen.gate.shut():
                return torch.autograd.grad(seen.states, parameters, credits, allow_unused=True)

        found = gradients(forward, list(stack.parameters()), credits)
        for seed, net in enumerate(nets):
            alone = watch_forward(net, self.TAPS, own(seed))
            wanted = gradients(alone, list(net.parameters()), [a[seed] for a in credits])
            for g, w in zip(found, wanted, strict=True):
                assert (g is None) == (w is None)
                if g is not None:
                    close(g[seed], w)

    @pytest.mark.parametrize("per_seed", [True, False], ids=["own inputs", "shared inputs"])
    @pytest.mark.parametrize("top", [True, False], ids=["top gradient", "none"])
    def test_a_cut_stack_sends_every_stage_its_own_credit(self, top, per_seed):
        nets = nets_of(NETS["resmlp"])
        stack, (x, own) = StackedNet.of(nets), self.inputs(per_seed)
        forward = cut_forward(stack, self.TAPS, x, top_gradient=top)
        assert [h.requires_grad for h in forward.passed] == [False, False, top]
        roots = [*forward.states, forward.output]
        credits = [torch.randn_like(h) for h in roots]
        torch.autograd.backward(roots, credits)
        assert (forward.passed[-1].grad is not None) == top
        for seed, net in enumerate(nets):
            alone = cut_forward(net, self.TAPS, own(seed), top_gradient=top)
            torch.autograd.backward([*alone.states, alone.output], [a[seed] for a in credits])
            for (name, p), (_, q) in zip(stack.named_parameters(), net.named_parameters(), strict=True):
                torch.testing.assert_close(p.grad[seed], q.grad, rtol=1e-11, atol=1e-12, msg=name)
            if top:
                close(forward.passed[-1].grad[seed], alone.passed[-1].grad)

    def test_what_was_read_survives_a_module_that_works_in_place(self):
        def make() -> nn.Module:
            return nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 2))

        nets = nets_of(make)
        x = leaf(9, 6).detach()
        for forward in (watch_forward(StackedNet.of(nets), ["0"], x), cut_forward(StackedNet.of(nets), ["0"], x)):
            for seed, net in enumerate(nets):
                close(forward.states[0][seed], net[0](x))

    def test_a_tap_that_all_seeds_share_is_refused(self):
        stack = StackedNet.of(nets_of(lambda: nn.Sequential(nn.Identity(), nn.Linear(6, 5))))
        with pytest.raises(RuntimeError, match="all seeds share it"):
            watch_forward(stack, ["0"], leaf(9, 6).detach())
        forward = watch_forward(stack, ["0"], PerSeed(leaf(SEEDS, 9, 6).detach()))
        assert forward.states[0].shape == (SEEDS, 9, 6)
        assert not pattern_of(stack)[0]._forward_hooks


class TestErrors:
    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("own", [True, False], ids=["own targets", "shared targets"])
    def test_errors_with_a_seed_axis_are_those_of_every_seed(self, own, masked):
        logits = 5 * leaf(SEEDS, 9, 4).detach()
        target = torch.randint(4, (SEEDS, 9) if own else (9,))
        mask = torch.arange(9) % 3 > 0 if masked else None
        if mask is not None:
            target = torch.where(mask, target, -1)
        together = cross_entropy_errors(logits, target, mask)
        through = errors_function(StackedNet.of(nets_of(NETS["resmlp"])), target, mask=mask)(logits)
        assert torch.equal(together.error, through.error)
        for seed in range(SEEDS):
            alone = row_errors(logits[seed], target[seed] if own else target, mask=mask)
            for name in ("loss", "error", "covered", "output", "target", "mean_loss"):
                assert torch.equal(getattr(together, name)[seed], getattr(alone, name)), name
            assert int(together.count) == int(alone.count) == (6 if masked else 9)

    def test_they_are_the_gradients_of_the_cross_entropy(self):
        logits, target = leaf(SEEDS, 9, 4), torch.randint(4, (SEEDS, 9))
        losses = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(SEEDS, 9)
        (g,) = torch.autograd.grad(losses.sum(), logits)
        errors = cross_entropy_errors(logits, target)
        close(errors.error, g)
        close(errors.loss, losses)
        close(errors.mean_loss, losses.mean(-1))


class TestQuartiles:
    def values(self) -> tuple[Tensor, Tensor]:
        values = torch.randn(4, 6, 11, dtype=torch.float64)
        values[1, 2] = math.nan
        values[torch.rand(values.shape) < 0.2] = math.nan
        keep = torch.rand(values.shape) < 0.7
        keep[0, 1] = False
        keep[2, 3] = torch.arange(11) == 5
        values[2, 3, 5] = 1.5
        return values, keep

    def expected(self, values: Tensor, keep: Tensor) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="All-NaN slice")
            return np.nanpercentile(torch.where(keep, values, math.nan).numpy(), [25, 50, 75], axis=-1)

    def test_they_are_numpy_s(self):
        values, keep = self.values()
        found = quartiles_where(values, keep)
        np.testing.assert_allclose(found, self.expected(values, keep), rtol=1e-12)
        assert bool(found[:, 0, 1].isnan().all() and found[:, 1, 2].isnan().all())
        assert found[:, 2, 3].tolist() == [1.5] * 3

    def test_mapped_over_seeds_they_are_the_same(self):
        values, keep = self.values()
        found = torch.vmap(quartiles_where, out_dims=1)(values, keep)
        np.testing.assert_array_equal(found, quartiles_where(values, keep))
        shared = torch.vmap(quartiles_where, in_dims=(0, None), out_dims=1)(values, keep[0])
        np.testing.assert_array_equal(shared, quartiles_where(values, keep[0].expand_as(values)))

    @pytest.mark.parametrize("rows", range(1, 10))
    def test_any_number_of_rows(self, rows):
        values = torch.randn(5, rows)
        everything = torch.ones_like(values, dtype=torch.bool)
        np.testing.assert_allclose(
            quartiles_where(values, everything), np.percentile(values.numpy(), [25, 50, 75], axis=-1), rtol=1e-5
        )
