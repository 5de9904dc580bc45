"""Local losses: heads tied to the net's own, pred and sim in NumPy, pooled images, tokens, rows without a loss."""

import numpy as np
import pytest
import torch
from small import MeanToken, Residual, apply_to, learn, numerical_gradient, rows, see, sequence, slopes
from torch import nn

from creditscope.rules import rule_class

Local = rule_class("local")
N, D, CLASSES, TAPS, BETA = 7, 4, 3, ("0", "1", "2"), 0.7
LOSSES = ("pred", "sim", "predsim")


def residual_net() -> nn.Sequential:
    return sequence(nn.Linear(5, D), Residual(D), Residual(D), nn.Linear(D, CLASSES))


def draw_heads(applied) -> None:
    """Heads away from where they start."""
    draw = torch.Generator().manual_seed(7)
    for weights in applied.feedback["heads"].values():
        for w in weights:
            w.copy_(torch.randn(w.shape, generator=draw, dtype=torch.float64))


def cosines(x: np.ndarray) -> np.ndarray:
    """Row by row, entry by entry; np.corrcoef centres each row by its own mean."""
    return np.corrcoef(x)


def losses(kind: str, h: np.ndarray, heads: dict[str, np.ndarray], y: np.ndarray) -> float:
    """A tap's own loss, summed over rows."""
    share = {"pred": 0.0, "sim": 1.0, "predsim": BETA}[kind]
    total = 0.0
    if kind != "sim":
        z = h @ heads["A"].T + heads["b"]
        total += (1 - share) * (np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y]).sum()
    if kind != "pred":
        off = cosines(h @ heads["C"].T) - cosines(np.eye(CLASSES)[y])
        total += share * (off**2).sum() / len(h)
    return total


def heads_at(applied, tap: int) -> dict[str, np.ndarray]:
    return {name: w[tap].numpy() for name, w in applied.feedback["heads"].items()}


def test_with_the_nets_own_head_the_last_tap_gets_the_gradient():
    net = residual_net()
    x, y = rows(N, 5)
    applied = apply_to(Local(), net, TAPS, x)
    applied.feedback["heads"]["A"][2].copy_(net[3].weight.detach())
    applied.feedback["heads"]["b"][2].copy_(net[3].bias.detach())
    seen = see(applied, x, y)
    torch.testing.assert_close(seen.credits[2], seen.exact[2], rtol=1e-13, atol=1e-15)
    assert not any(a.any() for a in seen.credits[:2])  # heads at 0 ask for nothing


def test_pred_by_hand():
    """a = Aᵀ(softmax(A h + b) − y*), and Adam is given the mean of (p − y*) hᵀ."""
    net = residual_net()
    x, y = rows(N, 5)
    applied = apply_to(Local(), net, TAPS, x)
    draw_heads(applied)
    seen, found = see(applied, x, y), slopes(applied, x, y)
    for tap, h in enumerate(seen.states):
        head = heads_at(applied, tap)
        z = np.exp(h.numpy() @ head["A"].T + head["b"])
        e = z / z.sum(1, keepdims=True) - np.eye(CLASSES)[y.numpy()]
        np.testing.assert_allclose(seen.credits[tap], e @ head["A"], rtol=1e-10)
        np.testing.assert_allclose(found["A"][tap], e.T @ h.numpy() / N, rtol=1e-10)
        np.testing.assert_allclose(found["b"][tap], e.mean(0), rtol=1e-10)


@pytest.mark.parametrize("kind", LOSSES)
def test_credit_and_slopes_are_those_of_the_loss(kind):
    """Against NumPy's own correlations, by central differences."""
    net = residual_net()
    x, y = rows(N, 5)
    applied = apply_to(Local(loss=kind, beta=BETA), net, TAPS, x)
    draw_heads(applied)
    seen, found = see(applied, x, y), slopes(applied, x, y)
    for tap, h in enumerate(seen.states):
        heads = heads_at(applied, tap)
        (credit,) = numerical_gradient(lambda a, heads=heads: losses(kind, a[0], heads, y.numpy()), [h])
        np.testing.assert_allclose(seen.credits[tap], credit, rtol=1e-6, atol=1e-8)
        names = list(heads)
        wanted = numerical_gradient(
            lambda a, h=h, names=names: losses(kind, h.numpy(), dict(zip(names, a, strict=True)), y.numpy()) / N,
            [applied.feedback["heads"][name][tap] for name in names],
        )
        for name, slope in zip(names, wanted, strict=True):
            np.testing.assert_allclose(found[name][tap], slope, rtol=1e-6, atol=1e-8)


def test_predsim_lies_between_the_two():
    net = residual_net()
    x, y = rows(N, 5)
    found = {}
    for kind in LOSSES:
        applied = apply_to(Local(loss=kind, beta=BETA), net, TAPS, x)
        for name, weights in applied.feedback["heads"].items():
            for w in weights:
                w.copy_(torch.randn(w.shape, generator=torch.Generator().manual_seed(len(name) + w.numel())))
        found[kind] = see(applied, x, y).credits
    for pred, sim, both in zip(*(found[kind] for kind in LOSSES), strict=True):
        torch.testing.assert_close(both, (1 - BETA) * pred + BETA * sim, rtol=1e-10, atol=1e-13)


def test_rows_interact_is_said_where_they_do():
    net = residual_net()
    x, y = rows(N, 5)
    for kind in LOSSES:
        rule = Local(loss=kind)
        applied = apply_to(rule, net, TAPS, x)
        draw_heads(applied)
        whole, few = see(applied, x, y).credits[1], see(applied, x[:4], y[:4]).credits[1]
        assert rule.rows_interact is not torch.allclose(whole[:4], few, rtol=1e-10)


@pytest.mark.parametrize("kind", LOSSES)
def test_rows_without_a_loss_count_as_if_they_were_not_there(kind):
    """Nothing else ties rows together in this net: credit and learned heads are those of the other rows alone."""
    net = residual_net()
    x, y = rows(N, 5)
    mask = torch.tensor([True, False, True, True, False, True, True])
    y[~mask] = -1
    masked, alone = (apply_to(Local(loss=kind, beta=BETA), net, TAPS, x) for _ in range(2))
    for applied in (masked, alone):
        draw_heads(applied)
    some, few = see(masked, x, y, mask=mask), see(alone, x[mask], y[mask])
    for a, b in zip(some.credits, few.credits, strict=True):
        assert not a[~mask].any()
        torch.testing.assert_close(a[mask], b, rtol=1e-11, atol=1e-13)
    learn(masked, x, y, mask=mask)
    learn(alone, x[mask], y[mask])
    for name, tensor in masked.tensors().items():
        torch.testing.assert_close(tensor, alone.tensors()[name], rtol=1e-10, atol=1e-13)


def test_a_state_of_zeros_has_no_direction_and_gets_no_credit():
    """Behind a ReLU a row may be 0 at a tap; 1/(length + ε) would be handed on as 1/ε."""
    net = sequence(nn.Linear(5, D), nn.ReLU(), nn.Linear(D, CLASSES))
    x, y = rows(N, 5)
    with torch.no_grad():
        x[2] = -50 * torch.linalg.lstsq(net[0].weight, torch.ones(D, 1).double()).solution[:, 0]
    applied = apply_to(Local(loss="sim"), net, ("1",), x)
    seen = see(applied, x, y)
    assert not seen.states[0][2].any()
    assert not seen.credits[0][2].any()
    assert 0 < float(seen.credits[0].abs().max()) < 10


def test_images_are_pooled_and_credit_is_spread_evenly_within_a_pool():
    """4 × 6 places of 2 channels to at most 12 features: 2 × 3 places, each the mean of 2 × 2."""
    net = sequence(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(2 * 4 * 6, CLASSES))
    x, y = rows(N, 1, 4, 6)
    applied = apply_to(Local(pooled=12), net, ("0",), x)
    assert applied.feedback["heads"]["A"][0].shape == (CLASSES, 12)
    draw_heads(applied)
    seen = see(applied, x, y)
    head, h = heads_at(applied, 0), seen.states[0].numpy()
    pooled = h.reshape(N, 2, 2, 2, 3, 2).mean((3, 5)).reshape(N, -1)
    z = np.exp(pooled @ head["A"].T + head["b"])
    a = (z / z.sum(1, keepdims=True) - np.eye(CLASSES)[y.numpy()]) @ head["A"] / 4
    wanted = np.repeat(np.repeat(a.reshape(N, 2, 2, 3), 2, axis=2), 2, axis=3)
    np.testing.assert_allclose(seen.credits[0], wanted, rtol=1e-10)
    whole = apply_to(Local(), net, ("0",), x)
    assert whole.feedback["heads"]["A"][0].shape == (CLASSES, 48)


@pytest.mark.parametrize("class_token", [None, 1])
def test_of_tokens_the_mean_or_the_class_token_is_read(class_token):
    net = sequence(nn.Linear(5, D), Residual(D), MeanToken(), nn.Linear(D, CLASSES))
    if class_token is not None:
        net.class_token = class_token
    x, y = rows(N, 3, 5)
    applied = apply_to(Local(), net, ("0", "1"), x)
    draw_heads(applied)
    seen = see(applied, x, y)
    for tap, h in enumerate(seen.states):
        head = heads_at(applied, tap)
        read = h.numpy().mean(1) if class_token is None else h.numpy()[:, class_token]
        z = np.exp(read @ head["A"].T + head["b"])
        a = (z / z.sum(1, keepdims=True) - np.eye(CLASSES)[y.numpy()]) @ head["A"]
        shares = [1 / 3] * 3 if class_token is None else [0.0, 1.0, 0.0]
        np.testing.assert_allclose(seen.credits[tap], np.stack([a * s for s in shares], axis=1), rtol=1e-10, atol=1e-15)


def test_heads_learn_to_classify_what_is_linear_in_the_state():
    net = residual_net()
    x, _ = rows(200, 5)
    y = see(apply_to(Local(), net, TAPS, x), x, torch.zeros(200, dtype=torch.int64)).states[1][:, :CLASSES].argmax(1)
    applied = apply_to(Local(rate=0.05), net, TAPS, x)
    for _ in range(150):
        learn(applied, x, y)
    head, h = heads_at(applied, 1), see(applied, x, y).states[1].numpy()
    assert np.mean((h @ head["A"].T + head["b"]).argmax(1) == y.numpy()) > 0.97
