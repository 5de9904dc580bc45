"""Many seeds as one net: outputs, gradients and buffers are those of the nets one by one."""

import pytest
import torch
from stacks import NETS, SEEDS, assert_stack_alike, close, leaf, nets_of
from torch import Tensor, nn

from creditscope.graph import Adjacency
from creditscope.nets.gcn import GCN
from creditscope.nets.resmlp import ResMLP
from creditscope.nets.vit import ViT
from creditscope.rng import generator
from creditscope.rules import FeedbackLinear, apply_rule, rule_class, transport_of
from creditscope.stack import PerSeed, StackedNet, call_net, pattern_of
from creditscope.taps import resolve_taps
from creditscope.tasks import load_task

pytestmark = pytest.mark.usefixtures("own_stream")


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
