"""Mini-batches of sampled neighbourhoods from torch_geometric, with or without its compiled extras."""

from typing import Any

import numpy as np
import torch
import torch_geometric.typing  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch_geometric.loader import NeighborLoader, NodeLoader  # pyright: ignore[reportMissingImports]
from torch_geometric.sampler import BaseSampler, SamplerOutput  # pyright: ignore[reportMissingImports]

COMPILED = torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE
"""Whether torch_geometric can sample by itself: it needs pyg-lib or torch-sparse for it."""


def neighbour_loader(
    data: Any, neighbours: list[int], *, seed: int = 0, compiled: bool = COMPILED, **given: Any
) -> Any:
    """`NeighborLoader` where it works, else a `NodeLoader` with the sampler below; `given` goes to either.

    `neighbours` are the most to be drawn for a node in each hop, one entry per layer of the net; -1: all of them.
    """
    if compiled:
        return NeighborLoader(data, num_neighbors=neighbours, **given)
    return NodeLoader(data, NumpySampler(data, neighbours, seed), **given)


class NumpySampler(BaseSampler):
    """Uniform sampling of in-neighbours without replacement, hop by hop, in NumPy; for one process."""

    def __init__(self, data: Any, neighbours: list[int], seed: int = 0):
        sources, targets = data.edge_index.numpy()
        self.order = np.argsort(targets, kind="stable")
        self.sources = sources[self.order]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=data.num_nodes))])
        self.place = np.full(data.num_nodes, -1)
        self.neighbours, self.rng = neighbours, np.random.default_rng(seed)

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> SamplerOutput:
        """The seed nodes first, then those of each hop, and the edges that were drawn, by their place among these."""
        reached = [index.node.numpy()]
        edges, rows, columns = [], [], []
        self.place[reached[0]] = np.arange(len(reached[0]))
        count = len(reached[0])
        for most in self.neighbours:
            drawn, owner = self._draw(reached[-1], most)
            sources = self.sources[drawn]
            new = np.unique(sources[self.place[sources] < 0])
            self.place[new] = count + np.arange(len(new))
            count += len(new)
            columns.append(self.place[reached[-1]][owner])
            rows.append(self.place[sources])
            edges.append(drawn)
            reached.append(new)
        nodes = np.concatenate(reached)
        self.place[nodes] = -1
        node, row, col, edge = (torch.from_numpy(np.concatenate(x)) for x in (reached, rows, columns, edges))
        return SamplerOutput(node, row, col, edge, metadata=(index.input_id, index.time))

    def _draw(self, nodes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Edges into these nodes, at most so many for each, and for each edge the place of its node among them."""
        degrees = self.starts[nodes + 1] - self.starts[nodes]
        owner = np.repeat(np.arange(len(nodes)), degrees)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        edges = self.starts[nodes][owner] + rank
        if most < 0:
            return edges, owner
        shuffled = np.lexsort((self.rng.random(len(edges)), owner))
        kept = shuffled[rank < most]
        return edges[kept], owner[kept]

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        """Not for links."""
        raise NotImplementedError("This sampler starts from nodes.")

    @property
    def edge_permutation(self) -> Tensor:
        """The graph's own edge behind each of the sampler's."""
        return torch.from_numpy(self.order)
