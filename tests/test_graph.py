"""Â and its product: against dense NumPy, with gradients, and for all seeds at once."""

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.tasks import load_task

pytestmark = pytest.mark.usefixtures("own_stream")


def graph() -> np.ndarray:
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((12, 12)) < 0.3, 1)
    return (upper | upper.T).astype(float)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own use, in forward mode
@pytest.mark.parametrize("how", ["symmetric", "row"])
def test_normalised_against_numpy(how):
    import scipy.sparse as sp

    dense = graph()
    looped = dense + np.eye(12)
    degree = looped.sum(1)
    expected = looped / degree[:, None] if how == "row" else looped / np.sqrt(np.outer(degree, degree))
    adjacency = Adjacency.normalised(sp.csr_matrix(dense), how, torch.float64)
    h = torch.randn(12, 5, dtype=torch.float64, requires_grad=True)
    product = adjacency @ h
    np.testing.assert_allclose(product.detach(), expected @ h.detach().numpy(), rtol=1e-12, atol=1e-14)
    delta = torch.randn(12, 5, dtype=torch.float64)
    (g,) = torch.autograd.grad(product, h, delta)
    np.testing.assert_allclose(g, expected.T @ delta.numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(adjacency.flipped @ delta, expected.T @ delta.numpy(), rtol=1e-12, atol=1e-14)
    with forward_ad.dual_level():
        pushed = forward_ad.unpack_dual(adjacency @ forward_ad.make_dual(h, delta)).tangent
    assert pushed is not None
    np.testing.assert_allclose(pushed.detach(), expected @ delta.numpy(), rtol=1e-12, atol=1e-14)


def test_all_seeds_are_one_product():
    adjacency = Adjacency.normalised(load_task("sbm").adjacency, "row", torch.float64)
    h = torch.randn(3, 1000, 4, dtype=torch.float64, requires_grad=True)
    stacked = torch.vmap(lambda x: adjacency @ x)(h)
    delta = torch.randn_like(stacked)
    (g,) = torch.autograd.grad(stacked, h, delta)
    for i in range(3):
        alone = h[i].detach().requires_grad_()
        out = adjacency @ alone
        torch.testing.assert_close(stacked[i], out)
        torch.testing.assert_close(g[i], torch.autograd.grad(out, alone, delta[i])[0])


def test_unknown_normalisation_is_refused():
    with pytest.raises(CreditscopeError, match=r"'column'\. Choices: row, symmetric"):
        Adjacency.normalised(load_task("sbm").adjacency, "column")
