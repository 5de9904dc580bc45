"""Â of a graph, and its product with node states: one sparse product either way, for any seeds at once."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from creditscope.errors import one_of


class Adjacency:
    """A normalised adjacency matrix with self-loops, Â, and its transpose for the backward pass."""

    def __init__(self, matrix: Tensor, transposed: Tensor):
        self.matrix, self.transposed = matrix, transposed

    @classmethod
    def normalised(cls, adjacency: Any, how: str = "symmetric", dtype: torch.dtype = torch.float32) -> "Adjacency":
        """Â = D̃^{-1/2}(A + I)D̃^{-1/2} ("symmetric") or D̃^{-1}(A + I) ("row") of a SciPy 0/1 matrix A."""
        import scipy.sparse as sp

        one_of("normalisation", how, ("symmetric", "row"))
        looped = (adjacency + sp.eye_array(adjacency.shape[0], format="csr")).tocsr()
        degree = np.asarray(looped.sum(axis=1)).ravel()
        if how == "row":
            matrix = sp.diags_array(1 / degree) @ looped
        else:
            scale = sp.diags_array(degree**-0.5)
            matrix = scale @ looped @ scale
        forward = _to_torch(matrix.tocsr(), dtype)
        return cls(forward, forward if how == "symmetric" else _to_torch(matrix.T.tocsr(), dtype))

    def __matmul__(self, h: Tensor) -> Tensor:
        """Â h for node states (nodes, features)."""
        return SparseProduct.apply(h, self)  # pyright: ignore[reportReturnType]

    @property
    def flipped(self) -> "Adjacency":
        """Âᵀ, which differs from Â where that is row-normalised."""
        return Adjacency(self.transposed, self.matrix)

    def to(self, *args: Any) -> "Adjacency":
        matrix = self.matrix.to(*args)
        return Adjacency(matrix, matrix if self.transposed is self.matrix else self.transposed.to(*args))

    def double(self) -> "Adjacency":
        return self.to(torch.float64)


def _to_torch(matrix: Any, dtype: torch.dtype) -> Tensor:
    held = (matrix.indptr, matrix.indices, matrix.data)
    pointers, indices, values = (torch.from_numpy(np.asarray(a)) for a in held)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # torch calls its CSR tensors beta
        return torch.sparse_csr_tensor(
            pointers.long(), indices.long(), values.to(dtype), matrix.shape, check_invariants=False
        )


class SparseProduct(torch.autograd.Function):
    """Â h, whose backward is Âᵀ δ; under `vmap` all seeds are one product, put beside the features."""

    @staticmethod
    def forward(h: Tensor, adjacency: Adjacency) -> Tensor:
        return adjacency.matrix @ h

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.adjacency = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None]:
        (delta,) = grad_outputs
        return SparseProduct.apply(delta, ctx.adjacency.flipped), None  # pyright: ignore[reportReturnType]

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Tensor:
        return SparseProduct.apply(grad_inputs[0], ctx.adjacency)  # pyright: ignore[reportReturnType]

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple[Tensor, int]:
        h, adjacency = args
        h = h.movedim(in_dims[0], 1)
        nodes, seeds, features = h.shape
        product = SparseProduct.apply(h.reshape(nodes, seeds * features), adjacency)
        return product.view(nodes, seeds, features), 1  # pyright: ignore[reportAttributeAccessIssue]
