"""Watch a torch_geometric net that is trained on sampled neighbourhoods, as graphs beyond one machine's memory are.

    pip install -e '.[pyg]'
    python examples/watch_pyg_neighbours.py

The graph is a generated block model; the net, the loader and the loop are plain torch_geometric. creditscope adds the
lines that say `scope`. What a snapshot of a sampled batch means is in docs/large-graphs.md.
"""

import argparse
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

try:
    from neighbours import neighbour_loader
    from torch_geometric.data import Data  # pyright: ignore[reportMissingImports]
    from torch_geometric.nn import SAGEConv  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise SystemExit(f"Expected torch_geometric, but there is no {error.name}: pip install -e '.[pyg]'") from None

import creditscope as cs
from creditscope.tasks import GraphTask, load_task


class SAGE(nn.Module):
    """GraphSAGE with mean aggregation: every conv but the last is followed by a ReLU."""

    def __init__(self, sizes: Sequence[int]):
        super().__init__()
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node features (nodes, inputs) and edges (2, edges) to logits (nodes, classes)."""
        *hidden, last = self.convs
        for conv in hidden:
            x = conv(x, edge_index).relu()
        return last(x, edge_index)


def graph_of(task: GraphTask) -> Data:
    """A graph task as torch_geometric holds it."""
    matrix: Any = task.adjacency
    ends = matrix.nonzero()
    return Data(
        x=torch.from_numpy(task.x),
        y=torch.from_numpy(task.y),
        edge_index=torch.stack([torch.from_numpy(e).long() for e in ends]),
        train=torch.from_numpy(task.train | task.validation),
        test=torch.from_numpy(task.test),
    )


def train_epoch(model: nn.Module, loader: Any, optimiser: torch.optim.Optimizer) -> float:
    """One pass over the seed nodes; the mean loss. Only the first `batch_size` rows of a batch are seed nodes."""
    model.train()
    total = 0.0
    for batch in loader:
        optimiser.zero_grad()
        seeds = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = nn.functional.cross_entropy(seeds, batch.y[: batch.batch_size])
        loss.backward()
        optimiser.step()
        total += float(loss.detach()) * batch.batch_size
    return total / len(loader.dataset)


def watch_batch(scope: cs.Scope, batch: Any, epoch: int) -> Any:
    """Snapshot a sampled batch, with the loss on its seed nodes."""
    seeds = torch.arange(batch.num_nodes) < batch.batch_size
    return scope.snapshot((batch.x, batch.edge_index), batch.y, mask=seeds, epoch=epoch)


def main(arguments: Sequence[str] | None = None) -> cs.Scope:
    """Train, watch, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--neighbours", type=int, default=4, help="drawn for a node in each hop")
    parser.add_argument("--batch", type=int, default=256, help="seed nodes")
    given = parser.parse_args(arguments)

    torch.manual_seed(0)
    task = load_task("sbm", nodes=given.nodes, homophily=0.6, signal=0.3)
    assert isinstance(task, GraphTask)
    data = graph_of(task)
    model = SAGE([task.input_shape[0], *[given.width] * (given.depth - 1), task.classes])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    neighbours = [given.neighbours] * given.depth
    train = neighbour_loader(data, neighbours, input_nodes=data.train, batch_size=given.batch, shuffle=True)
    print(f"{data.num_nodes} nodes, {data.num_edges // 2} edges, batches from a {type(train).__name__}")

    test = neighbour_loader(data, neighbours, input_nodes=data.test, batch_size=given.batch, shuffle=True)
    watched = next(iter(test))  # the same sampled batch every time: then snapshots differ by the weights alone
    scope = cs.watch(model, taps=[f"convs.{layer}" for layer in range(given.depth - 1)])
    for epoch in range(given.epochs + 1):
        told = f"training loss {train_epoch(model, train, optimiser):.3f}" if epoch else "before training"
        model.eval()
        seen = watch_batch(scope, watched, epoch)
        sizes = "  ".join(f"{g:.1e}" for g in seen.taps.g_norm)
        print(f"epoch {epoch}  {told:<19}  accuracy {seen.accuracy:.3f}  ‖g‖ per layer {sizes}")
    print(f"{watched.num_nodes} sampled nodes, of them {watched.batch_size} seeds")
    print(scope.audit())
    return scope


if __name__ == "__main__":
    main()
