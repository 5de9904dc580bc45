"""A contextual stochastic block model: communities with noisy features; the embedded default for graphs.

Deshpande et al., "Contextual stochastic block models" (NeurIPS 2018).
"""

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.tasks import GraphTask, clean_adjacency, register_task

LABELLED, VALIDATION_SHARE = 20, 0.25
GRAPH_SEED = 1


@register_task("sbm", version="sbm-1")
def sbm(
    *,
    nodes: int = 1000,
    classes: int = 4,
    features: int = 32,
    degree: float = 10.0,
    homophily: float = 0.8,
    signal: float = 0.5,
    normalisation: str = "symmetric",
) -> GraphTask:
    """`nodes` in equal communities; expected `degree`, a share `homophily` of it inside the community.

    Features are N(0, I) plus `signal` times a random unit-entry direction of the community. 20 labelled nodes a
    class train, a quarter of the rest validates, the others test.
    """
    if nodes < 40 * classes or not 0 <= homophily <= 1 or degree <= 0 or classes < 2:
        raise CreditscopeError(
            f"Expected at least 40 nodes a class, homophily from 0 to 1 and degree > 0, but got {nodes} nodes, "
            f"{classes} classes, homophily {homophily}, degree {degree}."
        )
    rng = np.random.default_rng(GRAPH_SEED)
    y = rng.permutation(np.arange(nodes) % classes)
    centres = rng.choice([-1.0, 1.0], size=(classes, features))
    x = rng.normal(size=(nodes, features)) + signal * centres[y]
    splits = _split(y, classes, rng)
    adjacency = _draw_edges(y, classes, degree, homophily, rng)
    return GraphTask("sbm", x.astype(np.float32), y, adjacency, *splits, classes, normalisation)


def _draw_edges(y: np.ndarray, classes: int, degree: float, homophily: float, rng: np.random.Generator):
    """A fixed number of edges, each inside a community with probability `homophily`: O(edges), not O(nodes²)."""
    nodes, edges = len(y), int(len(y) * degree / 2)
    by_class = [np.flatnonzero(y == c) for c in range(classes)]
    source = rng.integers(nodes, size=edges)
    inside = rng.random(edges) < homophily
    other = (y[source] + rng.integers(1, classes, size=edges)) % classes
    wanted = np.where(inside, y[source], other)
    target = np.empty(edges, dtype=np.int64)
    for c, members in enumerate(by_class):
        chosen = wanted == c
        target[chosen] = rng.choice(members, size=int(chosen.sum()))
    return clean_adjacency(source, target, nodes)


def _split(y: np.ndarray, classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = rng.permutation(len(y))
    train = np.zeros(len(y), dtype=bool)
    for c in range(classes):
        train[order[y[order] == c][:LABELLED]] = True
    rest = order[~train[order]]
    validation = np.zeros(len(y), dtype=bool)
    validation[rest[: int(VALIDATION_SHARE * len(rest))]] = True
    return train, validation, ~(train | validation)
