"""A linear probe: how much of the label can be read off a hidden state by a linear map.

Multinomial logistic regression with scikit-learn's default penalty (C = 1), fitted in float64 where the states lie. The
problem is convex: there is one solution, that of scikit-learn, and no transfer to the host.

A single probe is fitted by L-BFGS, which is stopped early: on a ResMLP's states up to .016 short in accuracy. Many
small ones walk in step, to the end: those of a net's layers and of all seeds, and on a GPU those of its taps, because
L-BFGS waits for the device at every step. The curvature of −log p_y in the logits is at most ½ (Böhning 1992), so steps
with the inverse of that bound need neither a line search nor a learning rate. They are accelerated (Nesterov); where
momentum points uphill it starts anew (O'Donoghue & Candès 2015).
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.measure.functional_net import Subject
from creditscope.record.schema import Facts
from creditscope.stack import Batch
from creditscope.taps import watch_forward

ROWS = 2048
"""To train on, and to test on, at most."""
FEATURES = 4096
"""States with more features are averaged over tokens (or places of an image) first."""
ITERATIONS, STEPS = 100, 1000
"""Of a single probe, and of many at once."""
CHECK_EVERY = 20
TOLERANCE = 1e-5
"""Largest entry of the mean gradient at which one of them is solved; it stays there, whatever the others do."""
WIDE = 1024
"""States with more features are probed one by one on a GPU, too."""
TOGETHER, ENTRIES = 64, 2**24
"""Probes that are fitted in one go, of states of at most so many entries: more would cost memory and gain little."""


def measure_probe(subject: Subject, facts: Facts) -> dict[str, Tensor]:
    """Test accuracy of a probe at every tap, trained on training rows; `probe_rows` is the number of test rows."""
    if subject.probe is None:
        raise CreditscopeError("Expected class labels, but got a loss of another kind.")
    train, test = subject.probe()
    states = _states(subject, train)
    others = states if test.inputs is train.inputs else _states(subject, test)
    y, y_test = (batch.only_scored(batch.target) for batch in (train, test))
    pairs = [(train.only_scored(h), test.only_scored(h_test)) for h, h_test in zip(states, others, strict=True)]
    found = probe_taps(pairs, y, y_test, facts.classes, in_step=y.device.type == "cuda")
    return {"probe": torch.stack(found), "probe_rows": torch.tensor(len(y_test), device=y_test.device)}


def probe_accuracy(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, classes: int) -> Tensor:
    """Accuracy on test rows of logistic regression on standardised features (rows, features); NaN if they overflow."""
    x, x_test = x.double(), x_test.double()
    if not (x.isfinite().all() and x_test.isfinite().all()):
        return x.new_tensor(torch.nan)
    mean, sd = x.mean(0), x.std(0, correction=0)
    sd = torch.where(sd > 0, sd, torch.inf)  # a feature that does not vary says nothing
    x, x_test = (x - mean) / sd, (x_test - mean) / sd
    weight, bias = fit_logistic(x, y, classes)
    return ((x_test @ weight + bias).argmax(-1) == y_test).double().mean()


def fit_logistic(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Weights (features, classes) and biases that minimise Σ −log p_y + ‖W‖²/2 over rows x (rows, features)."""
    rows, features = x.shape
    truth = torch.nn.functional.one_hot(y, classes).to(x)
    weight, bias = (x.new_zeros(shape, requires_grad=True) for shape in ((features, classes), (classes,)))
    limits = {"max_iter": ITERATIONS, "history_size": 10, "tolerance_grad": 1e-4, "tolerance_change": 1e-7}
    optimiser = torch.optim.LBFGS([weight, bias], line_search_fn="strong_wolfe", **limits)

    @torch.no_grad()
    def loss() -> Tensor:
        log_p = (x @ weight + bias).log_softmax(-1)
        error = log_p.exp() - truth
        weight.grad, bias.grad = (x.mT @ error + weight) / rows, error.mean(0)
        return (weight.square().sum() / 2 - (log_p * truth).sum()) / rows

    optimiser.step(loss)  # pyright: ignore[reportArgumentType]
    return weight.detach(), bias.detach()


def fit_logistics(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The same for many problems at once: weights (problems, features, classes), x (problems, rows, features).

    Features must have mean 0 over rows; the labels y (rows,) are shared.
    """
    rows, features = x.shape[-2:]
    if features > rows:  # the solution lies in the span of the rows
        basis, corner = torch.linalg.qr(x.mT)
        weight, bias = fit_logistics(corner.mT, y, classes)
        return basis @ weight, bias
    truth = torch.nn.functional.one_hot(y, classes).to(x)
    squares, axes = torch.linalg.eigh(x.mT @ x)
    turned, bound = x @ axes, squares.unsqueeze(-1).clamp(min=0) / 2 + 1
    weight, bias = x.new_zeros(len(x), features, classes), x.new_zeros(len(x), 1, classes)
    ahead_w, ahead_b, momentum = weight, bias, x.new_ones(len(x), 1, 1)
    found_w, found_b, solved = weight, bias, torch.zeros_like(momentum, dtype=torch.bool)
    for i in range(STEPS):
        error = (turned @ ahead_w + ahead_b).softmax(-1) - truth
        slope_w, slope_b = turned.mT @ error + ahead_w, error.sum(-2, keepdim=True)
        if i % CHECK_EVERY == 0:
            steepest = torch.maximum(slope_w.abs().amax((-2, -1)), slope_b.abs().amax((-2, -1)))
            found_w, found_b = torch.where(solved, found_w, ahead_w), torch.where(solved, found_b, ahead_b)
            solved = solved | (steepest <= TOLERANCE * rows)[:, None, None]
            if solved.all():
                break
        next_w, next_b = ahead_w - slope_w / bound, ahead_b - slope_b / (rows / 2)
        moved_w, moved_b = next_w - weight, next_b - bias
        uphill = (slope_w * moved_w).sum((-2, -1), keepdim=True) + (slope_b * moved_b).sum(-1, keepdim=True) > 0
        following = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        push = torch.where(uphill, 0.0, (momentum - 1) / following)
        momentum = torch.where(uphill, 1.0, following)
        weight, bias = next_w, next_b
        ahead_w, ahead_b = next_w + push * moved_w, next_b + push * moved_b
    return axes @ found_w, found_b.squeeze(-2)


Pair = tuple[Tensor, Tensor]
"""A layer's states to train on, and to test on."""


def probe_taps(taps: Sequence[Pair], y: Tensor, y_test: Tensor, classes: int, *, in_step: bool) -> list[Tensor]:
    """Accuracy of a probe for every tap (rows, features), those that are not wide in step or all one by one."""
    narrow = [i for i, (h, _) in enumerate(taps) if in_step and h.shape[-1] <= WIDE]
    found = dict(zip(narrow, probe_layers([taps[i] for i in narrow], y, y_test, classes), strict=True))
    rest = (i for i in range(len(taps)) if i not in found)
    found |= {i: probe_accuracy(taps[i][0], y, taps[i][1], y_test, classes) for i in rest}
    return [found[i] for i in range(len(taps))]


def probe_layers(layers: Sequence[Pair], y: Tensor, y_test: Tensor, classes: int) -> list[Tensor]:
    """Accuracy of a probe for every layer (…, rows, features), one for each leading index; layers of one width go
    together."""
    found: dict[int, Tensor] = {}
    for width in {h.shape[-1] for h, _ in layers}:
        own = [i for i, (h, _) in enumerate(layers) if h.shape[-1] == width]
        both = zip(*(layers[i] for i in own), strict=True)
        train, test = (torch.cat([h.reshape(-1, *h.shape[-2:]) for h in states]) for states in both)
        size = max(1, min(TOGETHER, ENTRIES // train[0].numel()))
        parts = zip(train.split(size), test.split(size), strict=True)
        accuracy = torch.cat([probe_accuracies(x, y, x_test, y_test, classes) for x, x_test in parts])
        counts = [prod(layers[i][0].shape[:-2]) for i in own]
        found |= dict(zip(own, accuracy.split(counts), strict=True))
    return [found[i].view(h.shape[:-2]) for i, (h, _) in enumerate(layers)]


def probe_accuracies(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, classes: int) -> Tensor:
    """Accuracy on test rows of a probe for every problem (problems, rows, features), on standardised features.

    NaN where something is not finite.
    """
    x, x_test = x.double(), x_test.double()
    varies = x.amax(-2, keepdim=True) > x.amin(-2, keepdim=True)
    finite = x.isfinite().all(-1).all(-1) & x_test.isfinite().all(-1).all(-1)
    mean, sd = x.mean(-2, keepdim=True), x.std(-2, correction=0, keepdim=True)
    ready = [torch.where(varies & finite[:, None, None], (t - mean) / sd, 0.0) for t in (x, x_test)]
    weight, bias = fit_logistics(ready[0], y, classes)
    right = ((ready[1] @ weight + bias.unsqueeze(-2)).argmax(-1) == y_test).double().mean(-1)
    return torch.where(finite, right, torch.nan)


def spread_rows(count: int) -> Tensor:
    """Index of at most `ROWS` of `count` rows, evenly spread, so that rows sorted by class are sampled alike.

    >>> spread_rows(5120)[:4].tolist()
    [0, 2, 5, 7]
    """
    return torch.arange(count) if count <= ROWS else torch.arange(ROWS) * count // ROWS


def _states(subject: Subject, batch: Batch) -> list[Tensor]:
    """The states at all taps, one vector per row."""

    def features(h: Tensor) -> Tensor:
        flat = h.flatten(1)
        if flat.shape[1] <= FEATURES or h.ndim < 3:
            return flat
        return h.mean(1) if h.ndim == 3 else h.flatten(2).mean(-1)  # tokens (T, d), images (channels, …)

    with torch.no_grad():
        forward = watch_forward(subject.net, subject.taps, batch.inputs, subject.tensors)
    return [features(h.detach()) for h in forward.states]
