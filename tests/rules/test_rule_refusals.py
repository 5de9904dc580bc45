"""What a rule cannot do with a net or an option is said before anything is trained."""

import pytest
import torch
from torch import Tensor, nn

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.losses import row_errors
from creditscope.rng import generator
from creditscope.rules import apply_rule, rule_class
from creditscope.rules._applied import normalise_credit
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run


def applied(rule: str, net: nn.Module, taps: tuple[str, ...], x: Tensor, **options):
    return apply_rule(rule_class(rule)(**options), net, taps, x, generator(0, "feedback")).applied


@pytest.mark.parametrize(
    ("rule", "option", "message"),
    [
        ("fa", {"head": "none"}, r"but got 'none'.*exact, random"),
        ("fa", {"scale": "large"}, r"but got 'large'.*match-init, unit"),
        ("dfa", {"tokens": "first"}, r"but got 'first'.*all, class"),
        ("dfa", {"index": "above"}, r"but got 'above'.*input, own"),
        ("dfa_gnn", {"alpha": 1.0}, r"alpha 1\.0, steps 50"),
        ("dfa_gnn", {"steps": 0}, "steps 0"),
        ("grape", {"rate": 0.0}, r"got 0\.0"),
        ("kaft", {"K": -1}, r"K -1, probes 1, rate 0\.05"),
        ("kaft", {"probes": 0}, "probes 0"),
        ("kaft", {"rate": 1.5}, r"rate 1\.5"),
        ("kaft", {"alpha": 0.0}, r"alpha 0\.0"),
    ],
)
def test_options(rule, option, message):
    with pytest.raises(CreditscopeError, match=message):
        rule_class(rule)(**option)


def test_a_normalisation_that_there_is_not():
    with pytest.raises(CreditscopeError, match=r"but got 'row'.*batch, none, sample"):
        normalise_credit(torch.ones(2, 3), "row")


@pytest.mark.parametrize("rule", ["dfa_gnn", "kaft"])
def test_a_net_without_a_graph(rule):
    with pytest.raises(CreditscopeError, match=r"graph .*Tensor"):
        build_run(plan_run(task="digits", net="resmlp", rule=rule))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.Dropout(0.5)], ids=["batch norm", "dropout"])
def test_a_net_that_does_not_compute_the_same_twice(layer):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), layer, nn.Linear(8, 3))
    with pytest.raises(CreditscopeError, match=r"'grape'.*: 2\."):
        applied("grape", net, ("1",), torch.randn(6, 4))


def test_a_watched_model_does_not_learn_feedback():
    with pytest.raises(CreditscopeError, match="'grape'"):
        cs.watch(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), taps="0", rule="grape")


def test_block_fa_on_maps_of_different_sizes():
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.Conv1d(4, 8, 3), nn.Flatten(), nn.Linear(32, 3))
    with pytest.raises(CreditscopeError, match=r"\(4, 6\) and \(8, 4\)"):
        applied("block_fa", net, ("0", "1"), torch.ones(5, 2, 8))
    net = nn.Sequential(nn.Conv2d(2, 4, (3, 1)), nn.Conv2d(4, 4, (3, 1)), nn.Flatten(), nn.Linear(128, 3))
    with pytest.raises(CreditscopeError, match=r"\(4, 6, 8\) and \(4, 4, 8\)"):
        applied("block_fa", net, ("0", "1"), torch.ones(5, 2, 8, 8))


def test_feedback_of_another_shape_than_its_weight():
    class Turned(cs.WeightRule):
        needs_feedback = True

        def draw_memory(self, layer, generator):
            return torch.zeros(layer.weight.shape[::-1])

    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    with pytest.raises(CreditscopeError, match=r"\(8, 4\) for '0', but got \(4, 8\)"):
        cs.convert(net, Turned(), taps="0", inputs=torch.ones(5, 4))


def test_credit_for_a_class_token_that_there_is_not():
    net = nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.Linear(12, 3))
    rule = applied("dfa", net, ("0",), torch.randn(5, 3, 4), tokens="class")
    with pytest.raises(CreditscopeError, match="tokens='class'"):
        rule.backward(torch.randn(5, 3, 4), lambda output: row_errors(output, torch.zeros(5, dtype=torch.long)))


class Beside(nn.Module):
    """The second layer is computed, and thrown away."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        self.second(h)
        return self.head(h)


def test_a_last_tap_that_the_head_does_not_read():
    x = torch.randn(5, 4)
    rule = applied("block_fa", Beside(), ("first", "second"), x)
    with pytest.raises(CreditscopeError, match="last tap"):
        rule.backward(x, lambda output: row_errors(output, torch.zeros(5, dtype=torch.long)))


def test_states_are_handed_on_by_rules_that_say_so_alone():
    """The head's gradient was counted twice where a rule forgot to."""

    class Forgetful(cs.TapRule):
        needs_top_gradient = True

        def credit(self, ctx):
            return cs.Credit(list(ctx.states), list(ctx.states))

    class Boastful(cs.TapRule):
        hands_on = True

        def credit(self, ctx):
            return list(ctx.states)

    x, y = torch.randn(6, 4), torch.zeros(6, dtype=torch.long)
    for rule in (Forgetful, Boastful):
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        with pytest.raises(CreditscopeError, match="hands_on"):
            cs.attach(net, rule, taps="1").backward(x, y)
