"""Many small logistic regressions at once, one per layer and seed, for states that a single probe would take long over.

Each minimises Σ −log p_y + ‖W‖²/2 over its rows, as `probe.fit_logistic`: the problem is convex, so the solution is the
same. The curvature of −log p_y in the logits is at most ½ (Böhning 1992), whatever the weights; steps with the inverse
of that bound need neither a line search nor a learning rate, so all problems walk in step. They are accelerated
(Nesterov), and a problem whose momentum points uphill starts anew (O'Donoghue & Candès 2015).
"""

import torch
from torch import Tensor

ITERATIONS = 1000
CHECK_EVERY = 20
TOLERANCE = 1e-5
"""Largest entry of the mean gradient at which a problem is solved; it stays there, whatever the others do."""


def fit_logistics(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Weights (problems, features, classes) and biases (problems, classes) for x (problems, rows, features).

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
    for i in range(ITERATIONS):
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


def probe_accuracies(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, classes: int) -> Tensor:
    """Accuracy on test rows of a probe for every problem (problems, rows, features), on standardised features.

    NaN where nothing varies over the training rows, or something is not finite.
    """
    x, x_test = x.double(), x_test.double()
    varies = x.amax(-2, keepdim=True) > x.amin(-2, keepdim=True)
    finite = x.isfinite().all(-1).all(-1) & x_test.isfinite().all(-1).all(-1)
    mean, sd = x.mean(-2, keepdim=True), x.std(-2, correction=0, keepdim=True)
    ready = [torch.where(varies & finite[:, None, None], (t - mean) / sd, 0.0) for t in (x, x_test)]
    weight, bias = fit_logistics(ready[0], y, classes)
    right = ((ready[1] @ weight + bias.unsqueeze(-2)).argmax(-1) == y_test).double().mean(-1)
    return torch.where(varies.any(-1).squeeze(-1) & finite, right, torch.nan)
