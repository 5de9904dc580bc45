"""FA: one forward serves credit and reference; the conversion reports and refuses."""

import pytest
import torch
from torch import nn

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.measure.observation import observe
from creditscope.nets.resmlp import ResMLP
from creditscope.rng import generator
from creditscope.rules import FeedbackLinear, apply_rule, rule_class
from creditscope.taps import resolve_taps


def small_net() -> tuple[ResMLP, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    net = ResMLP((7,), 4, depth=3, width=9)
    for block in net.blocks:
        nn.init.normal_(block.w2.weight, std=0.3)
    return net, torch.randn(12, 7), torch.randint(4, (12,))


def converted(net, x, **options):
    taps = resolve_taps(net, ["stem", "blocks.*"])
    return apply_rule(rule_class("fa")(**options), net, taps, x, generator(0, "feedback"))


def test_one_forward_serves_credit_and_reference():
    net, x, y = small_net()
    before = net(x)
    application = converted(net, x)
    torch.testing.assert_close(net(x), before, rtol=0, atol=0)
    seen = observe(net, application.applied, x, y)
    plain = ResMLP((7,), 4, depth=3, width=9)
    plain.load_state_dict({k: v for k, v in net.state_dict().items() if not k.endswith("feedback")})
    nn.functional.cross_entropy(plain(x), y).backward()
    assert seen.exact_weights.keys() == dict(plain.named_parameters()).keys()
    for name, gradient in seen.exact_weights.items():
        torch.testing.assert_close(gradient / 12, plain.get_parameter(name).grad, rtol=1e-4, atol=1e-6)


def test_state_dict_carries_the_feedback():
    net, x, _ = small_net()
    converted(net, x)
    names = [name for name in net.state_dict() if name.endswith("feedback")]
    assert len(names) == sum(isinstance(m, FeedbackLinear) for m in net.modules()) == 8


def test_report_lists_every_parameter_once():
    net, x, _ = small_net()
    report = converted(net, x).report
    assert set(report.roles) == {name for name, _ in net.named_parameters()}
    assert report.names("exact") == ["head.weight", "head.bias"]
    assert "norm.weight" in report.names("rule")
    assert "rule-trained (22)" in str(report)
    net, x, _ = small_net()
    exact_head = converted(net, x, head="exact").report
    # above the last block's w2 only exact things lie: the skip, the norm and the head
    assert set(exact_head.names("exact")) == {
        "head.weight", "head.bias", "norm.weight", "norm.bias", "blocks.2.w2.weight", "blocks.2.w2.bias",
    }  # fmt: skip


def test_match_init_scale():
    net, x, _ = small_net()
    stds = {name: float(p.detach().std()) for name, p in net.named_parameters()}
    converted(net, x, scale="match-init")
    layer = net.blocks[0].w2
    assert abs(float(layer.feedback.std()) / stds["blocks.0.w2.weight"] - 1) < 0.3


class WithMatrix(nn.Module):
    added_parameters: tuple[str, ...] = ()

    def __init__(self):
        super().__init__()
        self.a, self.matrix = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        return self.a(x) @ self.matrix


def test_what_would_silently_stay_backprop_is_refused():
    x = torch.randn(5, 2, 4)
    attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    with pytest.raises(CreditscopeError, match=r"'1\.self_attn' .*MultiheadAttention"):
        cs.convert(nn.Sequential(nn.Linear(4, 4), attention, nn.Flatten(), nn.Linear(8, 3)), "fa", taps="0", inputs=x)
    with pytest.raises(CreditscopeError, match=r"'matrix' of shape \(4, 3\).*added_parameters"):
        cs.convert(WithMatrix(), "fa", taps="a", inputs=x[:, 0])
    maps = nn.Sequential(nn.Conv1d(2, 4, 1), nn.Flatten(), nn.Linear(16, 3))
    maps.added_parameters = ("0.weight",)  # cannot be declared away
    with pytest.raises(CreditscopeError, match=r"'0\.weight' .*Conv1d"):
        cs.convert(maps, "fa", taps="0", inputs=x)


@pytest.mark.parametrize(
    "norm", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm, nn.utils.parametrizations.weight_norm]
)
def test_a_weight_that_is_computed_from_others_is_refused(norm):
    """Its feedback layer would train a copy, and the weight itself would stand still."""
    net = nn.Sequential(norm(nn.Linear(4, 4)), nn.Linear(4, 3))
    with pytest.raises(CreditscopeError, match=r"plain weight in '0'|weight matrix"):
        cs.convert(net, "fa", taps="0", inputs=torch.randn(5, 4))


def test_what_the_forward_does_not_use_is_reported_as_unused():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    net.idle = nn.Parameter(torch.zeros(3))
    net.forward = lambda x: net[1](net[0](x))
    report = cs.convert(net, "fa", taps="0", inputs=torch.randn(5, 4))
    assert report.names("unused") == ["idle"]
    assert report.names("rule") == ["0.weight", "0.bias"]


def test_a_net_cannot_be_converted_twice():
    net, x, _ = small_net()
    cs.convert(net, "fa", taps="blocks.*", inputs=x)
    with pytest.raises(CreditscopeError, match="not converted yet"):
        cs.convert(net, "fa", taps="blocks.*", inputs=x)


def test_a_layer_of_two_names_stays_one_layer_and_hooks_are_kept():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    net[1].again = net[0]
    hits = []
    net[0].register_forward_hook(lambda *args: hits.append(1))
    cs.convert(net, "fa", taps="1", inputs=torch.randn(5, 4))
    assert net[1].again is net[0]
    assert isinstance(net[0], FeedbackLinear)
    hits.clear()
    net(torch.randn(5, 4))
    assert hits == [1]


def test_a_converted_model_is_watched_under_its_own_rule_only():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    cs.convert(net, "fa", taps=["1", "3"], inputs=x, head="exact")
    with pytest.raises(CreditscopeError, match="got 'bp'"):
        cs.watch(net, taps=["1", "3"], rule="bp")
    by_name, by_default = cs.watch(net, taps=["1", "3"], rule="fa"), cs.watch(net, taps=["1", "3"])
    assert by_name.snapshot(x, y) == by_default.snapshot(x, y)
    assert by_name.records[0].facts.exact_taps == (1,)  # above it only the exact head lies
    other = cs.watch(net, taps=["0", "1"])
    other.snapshot(x, y)
    assert other.records[0].facts.exact_taps == ()
