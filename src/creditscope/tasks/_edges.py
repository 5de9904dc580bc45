"""Edge lists as clean adjacency matrices."""

from typing import Any

import numpy as np


def clean_adjacency(source: np.ndarray, target: np.ndarray, nodes: int) -> Any:
    """A symmetric 0/1 SciPy CSR matrix; duplicates and self-loops are dropped."""
    import scipy.sparse as sp

    both = np.concatenate([source, target]), np.concatenate([target, source])
    different = both[0] != both[1]
    ends = both[0][different], both[1][different]
    matrix = sp.csr_matrix((np.ones(len(ends[0]), dtype=np.float32), ends), shape=(nodes, nodes))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix
