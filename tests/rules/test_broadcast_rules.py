"""Rules that project the error or the target to every tap: DRTP, DFA of signs, DKP and FDFA, against NumPy."""

import numpy as np
import pytest
import torch
from credited import CLASSES, DEPTH, ROWS, SHAPES, TOKENS, at_work, close, graph, learn, stream
from learning import learn_once
from torch import Tensor, nn

from creditscope.measure.observation import observe
from creditscope.rules import AppliedRule
from creditscope.rules._pass import gaussian_probe

EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES)


def projected(v: np.ndarray, B: Tensor, h: Tensor) -> np.ndarray:
    """B v of every row in the shape of the state; the same for all its tokens."""
    a = np.stack([B.numpy() @ row for row in v])
    return np.repeat(a[:, None], h.shape[1], axis=1) if h.ndim == 3 else a.reshape(h.shape)


def softmax_error(net: nn.Module, x, y: Tensor) -> np.ndarray:
    logits = (net(*x) if isinstance(x, tuple) else net(x)).detach().numpy()
    exp = np.exp(logits - logits.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True) - np.eye(CLASSES)[y.numpy()]


@EVERY_SHAPE
def test_drtp_projects_the_target(shape):
    net, x, y, taps = SHAPES[shape]()
    applied = at_work("drtp", net, x, taps)
    seen = observe(net, applied, x, y)
    for a, B, h in zip(seen.credits, applied.feedback, seen.states, strict=True):
        close(a, projected(-np.eye(CLASSES)[y.numpy()], B, h), atol=0, rtol=1e-15)
    assert len(y.unique()) < ROWS
    for a in seen.credits:
        for row in range(ROWS):
            assert torch.equal(a[row], a[int((y == y[row]).nonzero()[0])])  # one credit for each class


def test_drtp_is_dfa_of_minus_the_target_and_the_head_learns_from_the_error():
    """Bit for bit, with the same feedback; a loss whose error is −y* gives it to DFA."""
    net, x, y = stream()
    drtp, dfa = (at_work(rule, net, x) for rule in ("drtp", "dfa"))
    assert all(torch.equal(*pair) for pair in zip(drtp.feedback, dfa.feedback, strict=True))
    told = observe(net, dfa, x, y, loss=lambda output, y: -output.gather(1, y[:, None]).squeeze(1)).credits
    for a, b in zip(observe(net, drtp, x, y).credits, told, strict=True):
        assert torch.equal(a, b)
    learn(drtp, x, y)
    h = observe(net, drtp, x, y).states[-1]
    close(net.head.weight.grad, softmax_error(net, x, y).T @ h.numpy() / ROWS)


def test_rows_outside_a_mask_are_told_no_target():
    net, inputs, y, mask, taps = graph()
    applied = at_work("drtp", net, inputs, taps)
    unknown = torch.where(mask, y, -100)
    for a, B in zip(observe(net, applied, inputs, unknown, mask=mask).credits, applied.feedback, strict=True):
        close(a, -np.eye(CLASSES)[y.numpy()] * mask.numpy()[:, None] @ B.T.numpy(), rtol=1e-15)
        assert (a[~mask] == 0).all()


@EVERY_SHAPE
def test_the_sign_of_the_error_is_projected(shape):
    net, x, y, taps = SHAPES[shape]()
    applied = at_work("dfa", net, x, taps, error="sign")
    seen = observe(net, applied, x, y)
    e = softmax_error(net, x, y)
    signs = np.where(np.eye(CLASSES)[y.numpy()] == 1, -1.0, 1.0)  # softmax − one-hot: negative at the target alone
    assert (np.sign(e) == signs).all()
    for a, B, h in zip(seen.credits, applied.feedback, seen.states, strict=True):
        close(a, projected(signs, B, h))


def test_rows_outside_a_mask_have_no_sign():
    net, inputs, y, mask, taps = graph()
    for a in observe(net, at_work("dfa", net, inputs, taps, error="sign"), inputs, y, mask=mask).credits:
        assert (a[~mask] == 0).all()
        assert (a[mask] != 0).all()


def test_a_head_and_its_direct_feedback_come_together_as_kolen_and_pollack_say():
    """Both are stepped by SGD with the same rate and decay: Wᵀ − B_L shrinks by (1 − ηλ) a step, whatever the rest."""
    rate, decay, steps, (net, x, y) = 0.05, 0.2, 40, stream()
    applied = at_work("dkp", net, x, rate=rate, decay=decay, optimiser="sgd")
    optimiser = torch.optim.SGD(net.parameters(), lr=rate, weight_decay=decay)
    before = net.head.weight.detach().T - applied.feedback["B"][-1]
    first = net.head.weight.detach().clone()
    for step in range(steps):
        rows = torch.randperm(ROWS, generator=torch.Generator().manual_seed(step))[:5]
        learn(applied, x[rows], y[rows])
        optimiser.step()
    after = net.head.weight.detach().T - applied.feedback["B"][-1]
    close(after, (1 - rate * decay) ** steps * before, atol=1e-14, rtol=1e-12)
    assert (net.head.weight - first).norm() > 0.1 * first.norm()


@EVERY_SHAPE
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_dkp_steps_as_torch_does_on_the_update_of_an_output_layer(optimiser, shape):
    """The gradient is the mean over rows of h_l eᵀ, h_l that of the class token; credit is B_l e after the step."""
    rate, decay, (net, x, y, taps) = 0.02, 0.3, SHAPES[shape]()
    applied = at_work("dkp", net, x, taps, rate=rate, decay=decay, optimiser=optimiser)
    twins = [b.clone().requires_grad_() for b in applied.feedback["B"]]
    kind = torch.optim.AdamW if optimiser == "adam" else torch.optim.SGD
    stepped = kind(twins, lr=rate, weight_decay=decay)
    for step in range(6):
        rows = torch.randperm(ROWS, generator=torch.Generator().manual_seed(step))[:5]
        states = observe(net, applied, x[rows], y[rows]).states
        e = torch.tensor(softmax_error(net, x[rows], y[rows]))
        for twin, h in zip(twins, states, strict=True):
            vectors = h[:, 0] if shape == "tokens" else h.flatten(1)
            twin.grad = sum(torch.outer(v, d) for v, d in zip(vectors, e, strict=True)) / len(rows)
        stepped.step()
        learn(applied, x[rows], y[rows])
        for twin, own in zip(twins, applied.feedback["B"], strict=True):
            close(own, twin.detach(), rtol=1e-10)
    seen = observe(net, applied, x, y)
    for a, B, h in zip(seen.credits, twins, seen.states, strict=True):
        close(a, projected(softmax_error(net, x, y), B.detach(), h), rtol=1e-9)


def test_dkp_on_a_graph_is_over_the_nodes_that_have_a_loss():
    net, inputs, y, mask, taps = graph()
    applied = at_work("dkp", net, inputs, taps, rate=0.5, decay=0.1, optimiser="sgd")
    states = observe(net, applied, inputs, y, mask=mask).states
    e, keep = softmax_error(net, inputs, y), mask.numpy()
    expected = [
        b.numpy() - 0.5 * (h.numpy()[keep].T @ e[keep] / keep.sum() + 0.1 * b.numpy())
        for b, h in zip(applied.feedback["B"], states, strict=True)
    ]
    learn(applied, inputs, y, mask=mask)
    for own, wanted in zip(applied.feedback["B"], expected, strict=True):
        close(own, wanted)


def mean_feedback(applied: AppliedRule, x: Tensor, steps: int, warm: int) -> list[Tensor]:
    """The feedback after `warm` steps, averaged over the others: what it fluctuates about."""
    taken = [torch.zeros_like(b) for b in applied.feedback[:-1]]
    for step in range(steps):
        learn_once(applied, x)
        if step >= warm:
            taken = [t + b / (steps - warm) for t, b in zip(taken, applied.feedback, strict=False)]
    return taken


@pytest.mark.parametrize("tokens", [False, True], ids=["vectors", "tokens"])
@pytest.mark.slow
def test_in_a_linear_net_fdfa_becomes_the_product_of_the_weights_and_the_gradient(tokens):
    """B_l → (W_out W_L … W_{l+1})ᵀ, for tokens over their number, whose mean the head reads."""
    net, x, y = stream(linear=True, std=0.3)
    x = torch.randn(ROWS, TOKENS, 4, dtype=torch.float64) if tokens else x
    applied = at_work("fdfa", net, x, rate=0.05)
    many = x.repeat(60, *[1] * (x.ndim - 1))
    found = mean_feedback(applied, many, steps=400, warm=150)
    product = net.head.weight.detach() / (TOKENS if tokens else 1)
    products = [product]
    for block in reversed(net.blocks):
        product = product @ (torch.eye(5) + block.w.weight.detach())
        products.insert(0, product)
    for own, B in zip(applied.feedback[:-1], found, strict=True):
        own.copy_(B)
    seen = observe(net, applied, x, y)
    off = [float((B - P.T).norm() / P.norm()) for B, P in zip(found, products, strict=True)]
    wrong = [float((a - g).norm() / g.norm()) for a, g in zip(seen.credits, seen.exact, strict=True)]
    print(f"B off the product by {off}, credit off the gradient by {wrong}")
    assert max(off) < 0.03
    assert max(wrong) < 0.03


@EVERY_SHAPE
def test_one_step_of_fdfa_by_differences(shape):
    """B ← (1 − ρ) B + ρ mean p (J p)ᵀ, J p by a central difference of the logits with p added to the state."""
    rate, size, (net, x, y, taps) = 0.3, 1e-6, SHAPES[shape]()
    applied = at_work("fdfa", net, x, taps, rate=rate)
    before, counter = [b.clone() for b in applied.feedback[:-1]], applied.feedback[-1].clone()
    states = observe(net, applied, x, y).states
    learn_once(applied, x)
    for place, (tap, h) in enumerate(zip(taps, states, strict=True)):
        p = gaussian_probe(counter, h.shape, h.dtype, place)
        sides = []
        for sign in (1, -1):
            hook = net.get_submodule(tap).register_forward_hook(lambda _, __, h, p=p, s=sign: h + s * size * p)
            sides.append(net(x).detach())
            hook.remove()
        pushed = (sides[0] - sides[1]) / (2 * size)
        p = p.mean(1) if shape == "tokens" else p.flatten(1)
        expected = (1 - rate) * before[place] + rate * torch.einsum("nd,nc->dc", p, pushed) / ROWS
        close(applied.feedback[place], expected, atol=1e-8, rtol=1e-7)
    assert int(applied.feedback[-1][1]) == int(counter[1]) + 1
    seen = observe(net, applied, x, y)
    for a, B, h in zip(seen.credits, applied.feedback[:-1], seen.states, strict=True):
        close(a, projected(softmax_error(net, x, y), B, h))
    assert len(seen.credits) == (DEPTH + 1 if shape == "vectors" else len(taps))
