"""Every rule on every net: credit by its formula, weight gradients by finite differences, FA by an autograd twin."""

import copy
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

from creditscope.losses import row_errors
from creditscope.measure.observation import observe
from creditscope.rng import generator
from creditscope.rules import FeedbackLinear, apply_rule, rule_class
from creditscope.rules._pass import Forward
from creditscope.taps import resolve_taps
from creditscope.tasks import load_task
from creditscope.train.data import GraphData
from creditscope.train.plan import plan_run
from creditscope.train.run import NETS

ROWS, CLASSES = 6, 4
NET_OPTIONS = {
    "resmlp": {"depth": 2, "width": 6},
    "student": {"depth": 2, "width": 6, "alpha": 0.5},
    "vit": {"depth": 2, "width": 8, "heads": 2, "patch": 4},
    "gcn": {"depth": 4, "width": 5},
}
RULES = ("bp", "fa", "block_fa", "dfa", "grape")
GRAPH_RULES = ("dfa_gnn", "kaft")
"""On a GCN alone; their formulas are in test_graph_rules."""


def build(name: str, rule: str, **rule_options):
    """A tiny net in float64 under a rule, with inputs, targets and mask."""
    torch.manual_seed(0)
    net_class, mask = NETS.get(name), None
    if name == "gcn":
        task = load_task("sbm", nodes=160, features=7)
        data = GraphData(task, plan_run(task="sbm", net="gcn", precision="float64"), torch.device("cpu"))
        inputs, y, mask = data.sample_batch().inputs, data.y, data.train
        net = net_class((7,), task.classes, **NET_OPTIONS[name]).double()
    else:
        shape = (3, 8, 8) if name == "vit" else (5,)
        inputs, y = torch.randn(ROWS, *shape).double(), torch.randint(CLASSES, (ROWS,))
        net = net_class(shape, CLASSES, **NET_OPTIONS[name]).double()
    for parameter in net.parameters():  # away from near-identity and zero starts
        nn.init.normal_(parameter, std=0.4)
    taps = [t for t in (net_class.stem_tap, net_class.block_taps) if t]
    chosen = rule_class(rule)(**rule_options)
    application = apply_rule(chosen, net, resolve_taps(net, taps), inputs, generator(0, "feedback"))
    return net, application.applied, inputs, y, mask


def as_arguments(inputs):
    return inputs if isinstance(inputs, tuple) else (inputs,)


def gradients(net, applied, inputs, y, mask) -> dict[str, torch.Tensor]:
    net.zero_grad()
    applied.backward(inputs, lambda output: row_errors(output, y, mask=mask))
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def mean_loss(output, y, mask) -> torch.Tensor:
    mask = slice(None) if mask is None else mask
    return nn.functional.cross_entropy(output[mask], y[mask])


def slopes(module: nn.Module, arguments, value: Callable) -> Iterator[tuple[str, torch.Tensor, float]]:
    """Of every parameter a random direction, and the slope of a value of the output by central differences."""
    stream, eps = torch.Generator().manual_seed(1), 1e-6
    for name, p in module.named_parameters():
        direction = torch.randn(p.shape, generator=stream, dtype=torch.float64)
        with torch.no_grad():
            p += eps * direction
            above = value(module(*arguments))
            p -= 2 * eps * direction
            below = value(module(*arguments))
            p += eps * direction
        yield name, direction, float(above - below) / (2 * eps)


@pytest.mark.parametrize("name", NET_OPTIONS)
def test_backprop_matches_finite_differences(name):
    net, applied, inputs, y, mask = build(name, "bp")
    found = gradients(net, applied, inputs, y, mask)
    for parameter_name, direction, slope in slopes(
        net, as_arguments(inputs), lambda output: mean_loss(output, y, mask)
    ):
        assert slope == pytest.approx(float((found[parameter_name] * direction).sum()), rel=1e-4, abs=1e-8)


class Surrogate(nn.Module):
    """FA without a custom backward: W sees a detached input, the input sees B; the value is that of W."""

    def __init__(self, layer: FeedbackLinear):
        super().__init__()
        self.weight, self.bias, self.B = layer.weight, layer.bias, layer.feedback

    def forward(self, x):
        through_B = nn.functional.linear(x, self.B)
        return nn.functional.linear(x.detach(), self.weight, self.bias) + through_B - through_B.detach()


@pytest.mark.parametrize("name", NET_OPTIONS)
def test_fa_matches_an_autograd_twin(name):
    net, applied, inputs, y, mask = build(name, "fa")
    found = gradients(net, applied, inputs, y, mask)
    twin = copy.deepcopy(net)
    for path, module in list(twin.named_modules()):
        if isinstance(module, FeedbackLinear):
            parent, _, child = path.rpartition(".")
            setattr(twin.get_submodule(parent), child, Surrogate(module))
    twin.zero_grad()
    mean_loss(twin(*as_arguments(inputs)), y, mask).backward()
    assert found.keys() == dict(net.named_parameters()).keys()
    for parameter_name, gradient in found.items():
        torch.testing.assert_close(gradient, twin.get_parameter(parameter_name).grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NET_OPTIONS)
def test_fa_with_feedback_equal_to_weights_is_backprop(name):
    net, applied, inputs, y, mask = build(name, "fa")
    for module in net.modules():
        if isinstance(module, FeedbackLinear):
            module.feedback.copy_(module.weight.detach())
    found = gradients(net, applied, inputs, y, mask)
    net.zero_grad()
    mean_loss(net(*as_arguments(inputs)), y, mask).backward()
    for parameter_name, p in net.named_parameters():
        torch.testing.assert_close(found[parameter_name], p.grad, rtol=1e-6, atol=1e-12)


def error_by_hand(output: np.ndarray, y: np.ndarray, mask) -> np.ndarray:
    exp = np.exp(output - output.max(1, keepdims=True))
    e = exp / exp.sum(1, keepdims=True) - np.eye(output.shape[1])[y]
    return e if mask is None else e * mask.numpy()[:, None]


def credit_by_hand(rule, applied, seen, y, mask, tokens="all") -> list[np.ndarray]:
    """a_l from the formulas, given the states, the feedback and the exact g_L."""
    e = error_by_hand(seen.output.numpy(), y.numpy(), mask)
    shapes = [h.shape for h in seen.states]
    token_net = len(shapes[0]) == 3

    def spread(a, shape):
        if not token_net:
            return a
        out = np.zeros(shape)
        out[:, slice(None) if tokens == "all" else 0] = a[:, None] if tokens == "all" else a
        return out

    if rule == "grape":
        return [spread(e @ R.numpy(), shape) for R, shape in zip(applied.feedback[:-1], shapes, strict=True)]
    if rule == "dfa":
        return [spread(e @ B.numpy().T, shape) for B, shape in zip(applied.feedback, shapes, strict=True)]
    top = seen.exact[-1].numpy()
    chain = [top[:, 0] if token_net else top]
    for B in reversed(applied.feedback):
        chain.insert(0, chain[0] @ B.numpy().T)
    return [*(spread(a, shape) for a, shape in zip(chain[:-1], shapes[:-1], strict=True)), top]


@pytest.mark.parametrize("name", NET_OPTIONS)
@pytest.mark.parametrize("rule", ["dfa", "block_fa", "grape"])
def test_tap_rules_match_formula_and_finite_differences(name, rule):
    net, applied, inputs, y, mask = build(name, rule)
    found = gradients(net, applied, inputs, y, mask)  # feedback may learn in this step
    seen = observe(net, applied, inputs, y, mask=mask)
    expected = credit_by_hand(rule, applied, seen, y, mask)
    for a, by_hand in zip(seen.credits, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), by_hand, rtol=1e-9, atol=1e-12)
    rows = ROWS if mask is None else int(mask.sum())
    first, *extra = as_arguments(inputs)
    for i, tap in enumerate(applied.anatomy.taps):
        stage, below = net.get_submodule(tap), seen.states[i - 1] if i else first
        a, arguments = torch.tensor(expected[i]), (below.flatten(1) if tap == "stem" else below, *extra)
        for path, direction, slope in slopes(stage, arguments, lambda h, a=a: (h * a).sum() / rows):
            gradient = float((found[f"{tap}.{path}"] * direction).sum())
            assert gradient == pytest.approx(slope, rel=1e-4, abs=1e-7), (tap, path)


@pytest.mark.parametrize("rule", ["dfa", "block_fa"])
def test_credit_to_the_class_token_alone(rule):
    net, applied, inputs, y, mask = build("vit", rule, tokens="class")
    seen = observe(net, applied, inputs, y)
    for a, by_hand in zip(seen.credits, credit_by_hand(rule, applied, seen, y, mask, tokens="class"), strict=True):
        np.testing.assert_allclose(a.numpy(), by_hand, rtol=1e-9, atol=1e-12)
        assert (a[:, 1:] == 0).all()


@pytest.mark.parametrize("name", NET_OPTIONS)
def test_what_a_rule_trains_is_what_is_measured(name):
    for rule in (*RULES, *(GRAPH_RULES if name == "gcn" else ())):
        net, applied, inputs, y, mask = build(name, rule)
        found = gradients(net, applied, inputs, y, mask)
        seen = observe(net, applied, inputs, y, mask=mask)
        rows = ROWS if mask is None else int(mask.sum())
        told = {**seen.exact_weights, **seen.rule_weights}
        assert told.keys() == found.keys() == dict(net.named_parameters()).keys()
        for parameter_name, gradient in told.items():
            torch.testing.assert_close(gradient / rows, found[parameter_name], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", NET_OPTIONS)
def test_products_pushed_forward_match_finite_differences(name):
    net, applied, inputs, _, _ = build(name, "grape")
    taps, tensors = applied.anatomy.taps, dict(net.named_parameters())
    stream, eps = torch.Generator().manual_seed(1), 1e-6
    rows = len(as_arguments(inputs)[0])
    shapes = [(2, rows, *shape) for shape in applied.anatomy.shapes]
    tangents = [torch.randn(shape, generator=stream, dtype=torch.float64) for shape in shapes]
    with torch.no_grad():
        pushed = Forward(net, taps, inputs, tensors).push(tangents)
    assert pushed.shape == (len(taps), 2, rows, net(*as_arguments(inputs)).shape[-1])

    def moved(tap: str, by: torch.Tensor) -> torch.Tensor:
        hook = net.get_submodule(tap).register_forward_hook(lambda _, __, h: h + by)
        with torch.no_grad():
            output = net(*as_arguments(inputs))
        hook.remove()
        return output

    for tap, tangent, found in zip(taps, tangents, pushed, strict=True):
        for probe in range(2):
            slope = (moved(tap, eps * tangent[probe]) - moved(tap, -eps * tangent[probe])) / (2 * eps)
            torch.testing.assert_close(found[probe], slope, rtol=1e-4, atol=1e-6)
    assert not any(module._forward_hooks for module in net.modules())


def test_nodes_without_a_label_carry_no_error_and_are_counted():
    net, applied, inputs, y, mask = build("gcn", "dfa")
    seen = observe(net, applied, inputs, y, mask=mask)
    assert (seen.errors.error[~mask] == 0).all()
    assert all((a[~mask] == 0).all() for a in seen.credits)
    assert applied.anatomy.rows_interact
    assert applied.anatomy.taps == ("layers.0", "layers.1", "layers.2")
