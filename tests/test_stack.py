"""Many seeds as one net: outputs, gradients and buffers are those of the nets one by one."""

import pytest
import torch
from stacks import EITHER_INPUTS, NETS, SEEDS, assert_stack_alike, close, draw, leaf, nets_of
from torch import Tensor, nn

from creditscope.graph import Adjacency
from creditscope.nets.gcn import GCN
from creditscope.rng import generator
from creditscope.rules import FeedbackLinear, apply_rule, rule_class, transport_of
from creditscope.stack import PerSeed, StackedNet, call_net, pattern_of
from creditscope.taps import resolve_taps
from creditscope.tasks import load_task

pytestmark = pytest.mark.usefixtures("own_stream")


class TestStackedNet:
    @pytest.mark.usefixtures("either_path")
    @EITHER_INPUTS
    @pytest.mark.parametrize("name", NETS)
    def test_outputs_and_gradients_are_those_of_the_nets(self, name, per_seed):
        inputs = draw(per_seed, *((2, 3, 8, 8) if name == "tokens" else ()))
        assert_stack_alike(nets_of(NETS[name]), inputs, per_seed=per_seed)

    def test_several_arguments(self):
        task = load_task("sbm", nodes=160)
        adjacency = Adjacency.normalised(task.adjacency, dtype=torch.float64)
        inputs = torch.from_numpy(task.x).double(), adjacency
        assert_stack_alike(nets_of(lambda: GCN((32,), 4, width=5)), inputs, per_seed=False)

    def test_tensors_given_stand_in_for_its_own(self):
        nets, others = nets_of(NETS["resmlp"]), nets_of(NETS["resmlp"])
        x = draw(False)
        given = {name: p for name, p in StackedNet.of(others).named_parameters() if name.startswith("blocks")}
        output = StackedNet.of(nets)(x, given)
        for seed in range(SEEDS):
            own = {name: p[seed] for name, p in given.items()}
            close(output[seed], call_net(nets[seed], x, own))
        assert not torch.allclose(output[0], nets[0](x))

    def test_one_net_can_be_a_stack(self):
        net, x = nets_of(NETS["resmlp"])[0], draw(False)
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
        assert_stack_alike(nets, draw(True, 9, 4))
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

    @EITHER_INPUTS
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    def test_batch_norm_keeps_the_statistics_of_every_seed(self, training, per_seed):
        def make() -> nn.Module:
            return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))

        nets = nets_of(make)
        other = StackedNet.of(nets)
        other.train(training)
        assert pattern_of(other).training == training
        for net in nets:
            net.train(training)
        for steps in (1, 2):
            stack = assert_stack_alike(nets, draw(per_seed), per_seed=per_seed)
            for seed, net in enumerate(nets):
                own = stack.state_of(seed)
                for name, b in net.named_buffers():
                    torch.testing.assert_close(own[name], b, rtol=1e-12, atol=0, msg=name)
                assert int(own["1.num_batches_tracked"]) == steps * training

    @pytest.mark.usefixtures("either_path")
    @pytest.mark.parametrize("exact", [True, False], ids=["exact", "feedback"])
    def test_feedback_matrices_carry_credit_down_in_every_seed(self, exact):
        nets = nets_of(NETS["resmlp"])
        for seed, net in enumerate(nets):
            taps = resolve_taps(net, ["stem", "blocks.*"])
            apply_rule(rule_class("fa")(), net, taps, draw(False), generator(seed, "feedback"))
        assert any(isinstance(m, FeedbackLinear) for m in nets[0].modules())
        switches = [transport_of(net) for net in nets]
        assert transport_of(StackedNet.of(nets)) is switches[0]
        for switch in switches:
            switch.exact = exact
        assert_stack_alike(nets, draw(True))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())
