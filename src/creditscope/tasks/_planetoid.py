"""Planetoid citation graphs (Cora, CiteSeer, PubMed) from their raw files, with the public split.

Yang, Cohen & Salakhutdinov, "Revisiting semi-supervised learning with graph embeddings" (ICML 2016).
"""

import numpy as np

from creditscope.tasks import GraphTask, clean_adjacency
from creditscope.tasks._files import DataFiles, read_pickle

HOME = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
VALIDATION = 500


def planetoid_files(name: str, checksums: dict[str, str]) -> DataFiles:
    """The eight raw files of one data set, by part and SHA-256."""
    return DataFiles(
        task=name,
        folder=f"planetoid/{name}/raw",
        checksums={f"ind.{name}.{part}": f"sha256:{checksums[part]}" for part in PARTS},
        url=HOME,
    )


def load_planetoid(files: DataFiles, *, normalisation: str) -> GraphTask:
    """Row-normalised features, labels, the symmetrised graph without self-loops, and the public split.

    Test rows come shuffled and are put at their node numbers. CiteSeer's `test.index` leaves out 15 isolated nodes
    of its range: they get zero features and class 0, and are in no split.
    """
    import scipy.sparse as sp

    folder, name = files.require(), files.task
    _, y, tx, ty, allx, ally, graph = (read_pickle(folder / f"ind.{name}.{part}") for part in PARTS[:-1])
    index = np.loadtxt(folder / f"ind.{name}.test.index", dtype=np.int64)
    nodes, labelled = int(index.max()) + 1, len(y)
    features = sp.lil_matrix((nodes, allx.shape[1]), dtype=np.float32)
    labels = np.zeros((nodes, y.shape[1]), dtype=np.int64)
    features[: allx.shape[0]], labels[: allx.shape[0]] = allx, ally
    features[index], labels[index] = tx, ty
    dense = features.toarray()
    node = np.arange(nodes)
    train, test = node < labelled, np.isin(node, index)
    validation = ~train & (node < labelled + VALIDATION)
    source = np.repeat(list(graph), [len(ends) for ends in graph.values()])
    target = np.concatenate([np.asarray(ends, dtype=np.int64) for ends in graph.values()])
    x = dense / np.maximum(dense.sum(1, keepdims=True), 1)
    adjacency = clean_adjacency(source, target, nodes)
    return GraphTask(name, x, labels.argmax(1), adjacency, train, validation, test, labels.shape[1], normalisation)
