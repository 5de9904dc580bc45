"""Each rule against a derivation by hand in NumPy, on 2-D and on token inputs."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from creditscope.losses import row_errors
from creditscope.measure.observation import observe
from creditscope.rng import generator
from creditscope.rules import CreditContext, FeedbackLinear, apply_rule, rule_class
from creditscope.rules._applied import normalise_credit
from creditscope.taps import resolve_taps

ROWS, TOKENS, INPUTS, WIDTH, CLASSES, DEPTH = 6, 3, 4, 5, 3, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(WIDTH, WIDTH)

    def forward(self, h):
        return h + torch.tanh(self.w(h))


class TanhNet(nn.Module):
    """h ← h + tanh(W h + b), on (rows, features) or (rows, tokens, features); the head reads the token mean."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(INPUTS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1) if h.ndim == 3 else h)


class ByHand:
    """The same net in NumPy, float64, with tokens always explicit: (rows, tokens, features)."""

    def __init__(self, net, x, y):
        self.parameters = {k: v.detach().numpy() for k, v in net.named_parameters()}
        self.x = x.numpy() if x.ndim == 3 else x.numpy()[:, None]
        p = self.parameters
        self.h = [self.x @ p["stem.weight"].T + p["stem.bias"]]
        self.slope = [np.ones_like(self.h[0])]
        for i in range(DEPTH):
            t = np.tanh(self.h[-1] @ p[f"blocks.{i}.w.weight"].T + p[f"blocks.{i}.w.bias"])
            self.h.append(self.h[-1] + t)
            self.slope.append(1 - t**2)
        self.tokens = self.x.shape[1]
        logits = self.h[-1].mean(1) @ p["head.weight"].T + p["head.bias"]
        exp = np.exp(logits - logits.max(1, keepdims=True))
        self.e = exp / exp.sum(1, keepdims=True) - np.eye(CLASSES)[y.numpy()]

    def spread(self, per_sample):
        """What the token mean sends back to every token."""
        return np.repeat(per_sample[:, None], self.tokens, axis=1) / self.tokens

    def backward(self, matrices, head):
        """Credit at every tap when W_l is replaced by `matrices[l]` and the head's weight by `head`."""
        a = [self.spread(self.e @ head)]
        for i in reversed(range(DEPTH)):
            a.insert(0, a[0] + (a[0] * self.slope[i + 1]) @ matrices[i])
        return a

    def weight_gradients(self, credit):
        """∂W of every stage when tap l is told `credit[l]`, mean over rows."""
        found = {}
        for i in range(DEPTH):
            delta = credit[i + 1] * self.slope[i + 1]
            found[f"blocks.{i}.w.weight"] = np.einsum("nto,nti->oi", delta, self.h[i]) / ROWS
            found[f"blocks.{i}.w.bias"] = delta.sum((0, 1)) / ROWS
        found["stem.weight"] = np.einsum("nto,nti->oi", credit[0], self.x) / ROWS
        found["stem.bias"] = credit[0].sum((0, 1)) / ROWS
        found["head.weight"] = self.e.T @ self.h[-1].mean(1) / ROWS
        found["head.bias"] = self.e.mean(0)
        return found


def chain(top, feedback, normalise=lambda a: a):
    """a_L, and a_l = B_l a_{l+1} below, with every link normalised."""
    credit = [top]
    for b in reversed(feedback):
        credit.insert(0, normalise(credit[0]) @ b.numpy().T)
    return credit


def credit_by_hand(rule, hand, applied, net):
    true = [hand.parameters[f"blocks.{i}.w.weight"] for i in range(DEPTH)]
    exact = hand.backward(true, hand.parameters["head.weight"])
    if rule == "bp":
        return exact
    if rule == "dfa":
        return [np.repeat((hand.e @ b.numpy().T)[:, None], hand.tokens, axis=1) for b in applied.feedback]
    if rule == "block_fa":
        return chain(exact[-1], applied.feedback)
    fixed = {n: m.feedback.numpy() for n, m in net.named_modules() if isinstance(m, FeedbackLinear)}
    return hand.backward([fixed[f"blocks.{i}.w"] for i in range(DEPTH)], fixed["head"])


def assert_gradients(net, expected):
    for name, gradient in expected.items():
        np.testing.assert_allclose(net.get_parameter(name).grad.numpy(), gradient, rtol=1e-9, atol=1e-12, err_msg=name)


def build(rule, tokens, **options):
    torch.manual_seed(0)
    net = TanhNet().double()
    x = torch.randn(ROWS, TOKENS, INPUTS).double() if tokens else torch.randn(ROWS, INPUTS).double()
    y = torch.randint(CLASSES, (ROWS,))
    hand = ByHand(net, x, y)
    taps = resolve_taps(net, ["stem", "blocks.*"])
    application = apply_rule(rule_class(rule)(), net, taps, x, generator(0, "feedback"), **options)
    return net, application.applied, x, y, hand


@pytest.mark.parametrize("tokens", [False, True], ids=["2-D", "tokens"])
@pytest.mark.parametrize("rule", ["bp", "dfa", "block_fa", "fa"])
def test_rule_matches_the_derivation(rule, tokens):
    net, applied, x, y, hand = build(rule, tokens)
    applied.backward(x, lambda output: row_errors(output, y))
    expected = credit_by_hand(rule, hand, applied, net)
    assert_gradients(net, hand.weight_gradients(expected))
    seen = observe(net, applied, x, y)
    exact = credit_by_hand("bp", hand, applied, net)
    for tap in range(DEPTH + 1):
        shape = seen.states[tap].shape
        np.testing.assert_allclose(seen.credits[tap].numpy(), expected[tap].reshape(shape), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(seen.exact[tap].numpy(), exact[tap].reshape(shape), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tokens", [False, True], ids=["2-D", "tokens"])
@pytest.mark.parametrize("how", ["batch", "sample"])
@pytest.mark.parametrize("rule", ["dfa", "block_fa"])
def test_normalised_credit_with_penalty(rule, how, tokens):
    penalty = 0.03
    net, applied, x, y, hand = build(rule, tokens, credit_norm=how, penalty=penalty)

    def normalise(a):
        over = None if how == "batch" else (1, 2)
        return a / (np.sqrt((a**2).mean(axis=over, keepdims=True)) + 1e-6)

    plain = raw = credit_by_hand(rule, hand, applied, net)
    if rule == "block_fa":
        raw = chain(plain[-1], applied.feedback, normalise)
    told = [normalise(a) for a in raw]
    for i in range(1, DEPTH + 1):
        told[i] = told[i] + 2 * penalty * (hand.h[i] - hand.h[i - 1])
    applied.backward(x, lambda output: row_errors(output, y))
    assert_gradients(net, hand.weight_gradients(told))
    seen = observe(net, applied, x, y)
    np.testing.assert_allclose(seen.credits[0].numpy(), plain[0].reshape(seen.states[0].shape), rtol=1e-9)
    told = {**seen.exact_weights, **seen.rule_weights}
    assert told.keys() == dict(net.named_parameters()).keys()
    for name, gradient in told.items():
        torch.testing.assert_close(gradient / ROWS, net.get_parameter(name).grad)


def test_a_sample_is_normalised_as_a_whole_and_keeps_the_proportions_of_its_tokens():
    a = np.random.default_rng(0).normal(size=(ROWS, TOKENS, WIDTH)) * np.array([1.0, 10.0, 0.0])[:, None]
    flat = a.reshape(ROWS, -1)
    expected = flat / (np.sqrt((flat**2).mean(1, keepdims=True)) + 1e-6)
    found = normalise_credit(torch.tensor(a), "sample")
    np.testing.assert_allclose(found, expected.reshape(a.shape))


def test_penalty_under_backprop_is_a_term_of_the_loss():
    penalty = 0.03
    net, applied, x, y, _ = build("bp", tokens=False, penalty=penalty)
    applied.backward(x, lambda output: row_errors(output, y))
    found = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    states = [net.stem(x)]
    for block in net.blocks:
        states.append(block(states[-1]))
    loss = nn.functional.cross_entropy(net.head(states[-1]), y)
    for below, above in pairwise(states):
        loss = loss + penalty * (above - below).square().sum(1).mean()
    loss.backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(found[name], p.grad)


def test_frozen_blocks_get_nothing_and_the_stem_learns():
    for rule in ("bp", "dfa", "block_fa", "fa"):
        net, applied, x, y, hand = build(rule, tokens=False, train_last=0)
        applied.backward(x, lambda output, y=y: row_errors(output, y))
        assert all(p.grad is None for name, p in net.named_parameters() if name.startswith("blocks"))
        expected = hand.weight_gradients(credit_by_hand(rule, hand, applied, net))
        np.testing.assert_allclose(net.stem.weight.grad.numpy(), expected["stem.weight"], rtol=1e-9)


def test_feedback_scales_are_as_stated():
    wide = rule_class("dfa")().draw_feedback([(400,)], 10, generator(0, "feedback"))[0]
    assert wide.shape == (400, 10)
    assert abs(float(wide.var()) - 1 / 10) < 0.01
    chain = rule_class("block_fa")().draw_feedback([(300,), (200,)], 10, generator(0, "feedback"))
    assert chain[0].shape == (300, 200)
    assert abs(float(chain[0].var()) - 1 / 200) < 0.0005
    net = nn.Sequential(nn.Linear(300, 200), nn.Linear(200, 50))
    apply_rule(rule_class("fa")(), net, resolve_taps(net, ["0"]), torch.ones(2, 300), generator(0, "feedback"))
    first, second = (layer.get_buffer("feedback") for layer in net)
    assert abs(float(first.var()) - 1 / 200) < 0.0005
    assert abs(float(second.var()) - 1 / 50) < 0.002


def test_block_fa_sends_credit_back_through_channels_alike_at_every_place():
    """a_l[n, :, y, x] = B_l a_{l+1}[n, :, y, x], place by place; W plays no part in B's shape."""
    torch.manual_seed(0)
    maps = (nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 5, 3, padding=1), nn.Conv2d(5, 3, 1))
    net = nn.Sequential(*maps, nn.Flatten(), nn.Linear(3 * 4 * 6, CLASSES)).double()
    x, y = torch.randn(ROWS, 1, 4, 6).double(), torch.randint(CLASSES, (ROWS,))
    applied = apply_rule(rule_class("block_fa")(), net, ("0", "1", "2"), x, generator(0, "feedback")).applied
    seen = observe(net, applied, x, y)
    B = [b.numpy() for b in applied.feedback]
    assert [b.shape for b in B] == [(2, 5), (5, 3)]
    logits = net(x).detach().numpy()
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    top = ((p - np.eye(CLASSES)[y.numpy()]) @ net[-1].weight.detach().numpy()).reshape(ROWS, 3, 4, 6)

    expected = [top]
    for b in reversed(B):
        below = np.zeros((ROWS, len(b), 4, 6))
        for n, row, col in np.ndindex(ROWS, 4, 6):
            below[n, :, row, col] = b @ expected[0][n, :, row, col]
        expected.insert(0, below)
    for a, by_hand in zip(seen.credits, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), by_hand, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tokens", ["all", "class"])
def test_the_chain_of_a_class_token_is_normalised_at_every_link(tokens):
    """a_L = g_L; below, the class token's credit over its RMS, times B, is given to all tokens or to it alone."""
    rng, place = np.random.default_rng(0), 1
    top = np.zeros((ROWS, TOKENS, WIDTH))
    top[:, place] = 100 * rng.normal(size=(ROWS, WIDTH))
    B = rng.normal(size=(DEPTH, WIDTH, WIDTH))
    unused = torch.zeros(ROWS, CLASSES)
    seen = {"error": unused, "output": unused, "target": unused, "inputs": None, "class_token": place}
    context = CreditContext(
        **seen,
        states=[torch.zeros(ROWS, TOKENS, WIDTH).double()] * (DEPTH + 1),
        feedback=[torch.tensor(b) for b in B],
        top_gradient=torch.tensor(top),
        normalise=lambda a: a / a.square().mean(dim=1, keepdim=True).sqrt(),
    )
    found = rule_class("block_fa")(tokens=tokens).credit(context)
    np.testing.assert_array_equal(found[-1], top)
    above = top[:, place]
    for tap in reversed(range(DEPTH)):
        above = above / np.sqrt((above**2).mean(1, keepdims=True)) @ B[tap].T
        for token in range(TOKENS):
            told = above if tokens == "all" or token == place else 0 * above
            np.testing.assert_allclose(found[tap][:, token], told)


def test_grape_learns_from_all_tokens_of_a_sample():
    """(J p) pᵀ summed over rows and tokens; R takes a step at right angles to itself, columns are made unit vectors."""
    rate, rng, probes = 0.3, np.random.default_rng(0), []
    rule = rule_class("grape")(rate=rate)
    R, counter = rule.draw_feedback([(TOKENS, WIDTH)], CLASSES, generator(0, "feedback"))
    pushed = rng.normal(size=(ROWS, CLASSES))

    class Pushed(CreditContext):
        def push_forward(self, tangents):
            probes.append(tangents[0][0].double().numpy())
            return torch.tensor(pushed)[None, None]

    unused, states = torch.zeros(ROWS, CLASSES), [torch.zeros(ROWS, TOKENS, WIDTH)]
    context = Pushed(unused, unused, unused, states, [R.double(), counter], None, None)
    found, _ = rule.learn_feedback(context)
    goal = np.einsum("nc,ntd->cd", pushed, probes[0])
    before = R.double().numpy()
    size, unit, goal = np.linalg.norm(before), before / np.linalg.norm(before), goal / np.linalg.norm(goal)
    after = before + rate * size * (goal - (goal * unit).sum() * unit)
    np.testing.assert_allclose(found, after / np.linalg.norm(after, axis=0), rtol=1e-6)


def test_shared_parameters_are_measured_as_they_are_trained():
    """Two blocks that share one layer, and a stem tied to the head."""
    net, x, y = TanhNet(), torch.randn(9, WIDTH).double(), torch.randint(WIDTH, (9,))
    net.stem, net.head = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
    net.blocks[1].w, net.head.weight = net.blocks[0].w, net.stem.weight
    taps = resolve_taps(net.double(), ["stem", "blocks.*"])
    applied = apply_rule(rule_class("dfa")(), net, taps, x, generator(0, "f")).applied
    applied.backward(x, lambda output: row_errors(output, y))
    seen = observe(net, applied, x, y)
    assert len(seen.rule_weights) == 3
    for name, p in net.named_parameters():
        torch.testing.assert_close(seen.rule_weights[name] / 9, p.grad)
