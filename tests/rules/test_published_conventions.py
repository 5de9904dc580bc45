"""What published numbers rest on, by hand in NumPy: credit normalised as of the mean loss, DFA indexed by input."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from creditscope.errors import CreditscopeError
from creditscope.losses import errors_function, row_errors
from creditscope.measure.observation import observe
from creditscope.nets.resmlp import ResMLP
from creditscope.rng import generator
from creditscope.rules import apply_rule, rule_class
from creditscope.rules._applied import normalise_credit
from creditscope.stack import StackedNet
from creditscope.taps import resolve_taps
from creditscope.testing import assert_rule

ROWS, INPUTS, WIDTH, CLASSES, DEPTH = 9, 4, 6, 3, 3
BATCH = 5000
"""Of a training step: so large that eps counts, and not the rows at hand."""
gelu = np.vectorize(lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2)
gelu_slope = np.vectorize(
    lambda z: (1 + math.erf(z / math.sqrt(2))) / 2 + z * math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
)


class ByHand:
    """A ResMLP without terminal norm in float64."""

    def __init__(self, net, x, y):
        p = self.p = {name: t.detach().numpy() for name, t in net.named_parameters()}
        self.x, self.h, self.inside = x.numpy(), [x.numpy() @ p["stem.weight"].T + p["stem.bias"]], []
        for i in range(DEPTH):
            h, own = self.h[-1], {n.removeprefix(f"blocks.{i}."): t for n, t in p.items() if f"blocks.{i}." in n}
            centred = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
            u = centred * own["norm.weight"] + own["norm.bias"]
            z = u @ own["w1.weight"].T + own["w1.bias"]
            self.inside.append((own, centred, u, z))
            self.h.append(h + gelu(z) @ own["w2.weight"].T + own["w2.bias"])
        logits = self.h[-1] @ p["head.weight"].T + p["head.bias"]
        chances = np.exp(logits - logits.max(1, keepdims=True))
        self.e = chances / chances.sum(1, keepdims=True) - np.eye(CLASSES)[y.numpy()]
        self.top = self.e @ p["head.weight"]

    def weight_gradients(self, told):
        """Of every parameter below the head when tap l is told `told[l]`, mean over rows."""
        found = {"stem.weight": told[0].T @ self.x, "stem.bias": told[0].sum(0)}
        for i, (own, centred, u, z) in enumerate(self.inside):
            a = told[i + 1]
            down = (a @ own["w2.weight"]) * gelu_slope(z)
            into = down @ own["w1.weight"]
            parts = {"w2.weight": a.T @ gelu(z), "w2.bias": a.sum(0), "w1.weight": down.T @ u, "w1.bias": down.sum(0)}
            parts |= {"norm.weight": (into * centred).sum(0), "norm.bias": into.sum(0)}
            found |= {f"blocks.{i}.{name}": g for name, g in parts.items()}
        return {name: g / ROWS for name, g in found.items()}


def make_net(seed):
    torch.manual_seed(seed)
    net = ResMLP((INPUTS,), CLASSES, depth=DEPTH, width=WIDTH, terminal_norm=False).double()
    for block in net.blocks:
        torch.nn.init.normal_(block.w2.weight, std=0.3)
    return net


def build(rule, seed=0, **options):
    net, stream = make_net(seed), torch.Generator().manual_seed(0)
    x, y = torch.randn(ROWS, INPUTS, generator=stream).double(), torch.randint(CLASSES, (ROWS,), generator=stream)
    taps = resolve_taps(net, ["stem", "blocks.*"])
    return net, apply_rule(rule, net, taps, x, generator(seed, "feedback"), **options).applied, x, y


def raw_credit(name, hand, B):
    if name == "dfa":
        return [hand.e @ B[i].T for i in (0, *range(DEPTH))]
    chain = [hand.top]
    for b in reversed(B):
        chain.insert(0, chain[0] @ b.T)
    return chain


CASES = [
    ("block_fa", {}, "sample-mean"),
    ("dfa", {"index": "input"}, "none"),
    ("dfa", {"index": "input"}, "sample-mean"),
]


@pytest.mark.parametrize(("name", "options", "how"), CASES)
def test_credit_and_weight_gradients_match_the_derivation(name, options, how):
    net, applied, x, y = build(rule_class(name)(**options), credit_norm=how, batch=BATCH)
    hand = ByHand(net, x, y)
    credit = raw_credit(name, hand, [b.double().numpy() for b in applied.feedback])
    told = credit
    if how == "sample-mean":
        told = [a / (np.sqrt((a**2).mean(1, keepdims=True)) + 1e-6 * BATCH) for a in credit]
    applied.backward(x, lambda output: row_errors(output, y))
    expected = hand.weight_gradients(told)
    for parameter, gradient in expected.items():
        np.testing.assert_allclose(net.get_parameter(parameter).grad, gradient, rtol=1e-8, atol=1e-12)
    seen = observe(net, applied, x, y)
    for found, wanted in zip(seen.credits, credit, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8)
    for parameter, gradient in expected.items():
        np.testing.assert_allclose(seen.rule_weights[parameter] / ROWS, gradient, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("name", "options", "how"), CASES)
def test_a_stack_does_as_each_of_its_seeds(name, options, how):
    rule = rule_class(name)(**options)
    alone = [build(rule, seed, credit_norm=how, batch=BATCH) for seed in (1, 2)]
    (_, first, x, y), *_ = alone
    stack = StackedNet.of([net for net, *_ in alone])
    feedback = [torch.stack(b) for b in zip(*(applied.feedback for _, applied, *_ in alone), strict=True)]
    replace(first, net=stack, feedback=feedback).backward(x, errors_function(stack, y))
    together = dict(stack.named_parameters())
    for place, (net, applied, *_) in enumerate(alone):
        applied.backward(x, lambda output: row_errors(output, y))
        for parameter, own in net.named_parameters():
            torch.testing.assert_close(together[parameter].grad[place], own.grad, rtol=1e-9, atol=1e-12)


def test_the_last_feedback_of_an_input_index_is_drawn_and_not_used():
    drawn = {i: build(rule_class("dfa")(index=i))[1].feedback for i in ("own", "input")}
    assert len(drawn["input"]) == DEPTH + 1
    assert all(map(torch.equal, drawn["own"], drawn["input"]))
    net, applied, x, y = build(rule_class("dfa")(index="input"))
    before = observe(net, applied, x, y).credits
    applied.feedback[-1].zero_()
    assert all(map(torch.equal, before, observe(net, applied, x, y).credits))


def test_small_credit_is_hardly_normalised_and_a_batch_of_one_is_per_sample():
    a = torch.tensor([[3.0, 4.0], [3e-9, 4e-9]], dtype=torch.float64)
    found = normalise_credit(a, "sample-mean", 128)
    np.testing.assert_allclose(found[0], a[0] / (12.5**0.5 + 1.28e-4))
    np.testing.assert_allclose(found[1], a[1] / 1.28e-4, rtol=1e-4)
    assert torch.equal(normalise_credit(a, "sample-mean", 1), normalise_credit(a, "sample"))


def test_an_index_holds_on_tokens_and_is_refused_where_it_has_no_meaning():
    assert_rule(rule_class("dfa")(index="input"))
    assert rule_class("dfa_gnn")().index == "own"
    with pytest.raises(CreditscopeError, match="sizes 4, 6"):
        rule_class("dfa")(index="input").draw_feedback([(4,), (6,)], 3, generator(0, "feedback"))
