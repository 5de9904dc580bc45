"""CIFAR-10 and Planetoid: the readers on files made here, and on the real ones where they are."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from creditscope.errors import CreditscopeError
from creditscope.tasks import cifar10 as cifar
from creditscope.tasks import citeseer, cora, load_task, pubmed
from creditscope.tasks._files import DataFiles
from creditscope.tasks._planetoid import load_planetoid

NEEDS_CIFAR = pytest.mark.skipif(
    not cifar.PYTHON.present(), reason="needs CIFAR-10 in the data folder (CREDITSCOPE_DATA)"
)
HAVE_PLANETOID = all(module.FILES.present() for module in (cora, citeseer, pubmed))


def test_both_versions_of_a_cifar_batch_read_alike(tmp_path):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(256, size=(5, 3072), dtype=np.uint8), rng.integers(10, size=5)
    (tmp_path / "py").write_bytes(pickle.dumps({"data": pixels, "labels": labels.tolist()}, protocol=2))
    rows = np.concatenate([labels[:, None].astype(np.uint8), pixels], axis=1)
    (tmp_path / "bin").write_bytes(rows.tobytes())
    for x, y in (cifar.read_python(tmp_path / "py"), cifar.read_binary(tmp_path / "bin")):
        assert x.dtype == np.uint8
        assert x[0, 1, 2, 3] == pixels[0, 1024 + 2 * 32 + 3]  # channel, row, column
        np.testing.assert_array_equal(x.reshape(5, -1), pixels)
        np.testing.assert_array_equal(y, labels)


@pytest.mark.parametrize(
    ("read", "held", "said"),
    [
        (cifar.read_binary, b"\0" * 3074, r"3073 .*3074"),
        (cifar.read_python, pickle.dumps({"labels": [1]}), "'data' and 'labels'"),
        (cifar.read_python, pickle.dumps({"data": np.zeros((2, 10), np.uint8), "labels": [1, 2]}), "3072"),
    ],
)
def test_wrong_cifar_files_are_refused(tmp_path, read, held, said):
    (tmp_path / "f").write_bytes(held)
    with pytest.raises(CreditscopeError, match=said):
        read(tmp_path / "f")


@NEEDS_CIFAR
def test_real_cifar10():
    task = load_task("cifar10")
    assert task.x_train.shape == (50000, 3, 32, 32)
    assert task.x_test.shape == (10000, 3, 32, 32)
    assert np.bincount(task.y_train).tolist() == [5000] * 10
    assert np.bincount(task.y_test).tolist() == [1000] * 10
    mean, std = task.x_train.mean((0, 2, 3)) / 255, (task.x_train[:5000] / 255).std((0, 2, 3))
    np.testing.assert_allclose(mean, task.images.mean, atol=5e-4)
    np.testing.assert_allclose(std, task.images.std, atol=5e-3)


@NEEDS_CIFAR
def test_reading_cifar10_stays_under_one_gibibyte():
    code = (
        "from pathlib import Path; from creditscope.tasks import load_task; load_task('cifar10');"
        "print(next(l for l in Path('/proc/self/status').read_text().splitlines() if 'VmHWM' in l).split()[1])"
    )
    peak = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert peak < 2**20  # KiB


def fake_planetoid(root) -> tuple[DataFiles, np.ndarray, np.ndarray]:
    """Ten nodes: 0–5 in allx (0, 1 labelled for training), tests 6–9 in shuffled order with 8 left out (isolated)."""
    rng = np.random.default_rng(0)
    features, labels = rng.integers(2, size=(10, 4)).astype(np.float32), np.eye(3, dtype=np.int32)[np.arange(10) % 3]
    features[:, 0] = 1
    order = [9, 6, 7]
    parts = {
        "x": sp.csr_matrix(features[:2]),
        "y": labels[:2],
        "allx": sp.csr_matrix(features[:6]),
        "ally": labels[:6],
        "tx": sp.csr_matrix(features[order]),
        "ty": labels[order],
        "graph": {0: [1, 1, 0], 1: [0, 2], 2: [], 5: [6, 9], 9: [5]},
    }
    folder = root / "planetoid" / "toy" / "raw"
    folder.mkdir(parents=True)
    for part, value in parts.items():
        (folder / f"ind.toy.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.toy.test.index").write_text("\n".join(map(str, order)) + "\n")
    return DataFiles("toy", "planetoid/toy/raw", {}, "https://example.invalid"), features, labels


def test_planetoid_reader_on_a_graph_made_here(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDITSCOPE_DATA", str(tmp_path))
    files, features, labels = fake_planetoid(tmp_path)
    monkeypatch.setattr(DataFiles, "require", lambda self: self.path)
    monkeypatch.setattr("creditscope.tasks._planetoid.VALIDATION", 3)
    task = load_planetoid(files, normalisation="symmetric")
    present = [n for n in range(10) if n != 8]
    np.testing.assert_allclose(task.x[present], (features / features.sum(1, keepdims=True))[present])
    np.testing.assert_array_equal(task.y[present], labels.argmax(1)[present])
    assert task.x[8].sum() == 0
    assert task.train.nonzero()[0].tolist() == [0, 1]
    assert task.validation.nonzero()[0].tolist() == [2, 3, 4]
    assert sorted(task.test.nonzero()[0].tolist()) == [6, 7, 9]
    edges = sorted(zip(*task.adjacency.nonzero(), strict=True))
    assert edges == [(0, 1), (1, 0), (1, 2), (2, 1), (5, 6), (5, 9), (6, 5), (9, 5)]


@pytest.mark.skipif(not HAVE_PLANETOID, reason="needs the Planetoid files in the data folder (CREDITSCOPE_DATA)")
@pytest.mark.parametrize(
    ("name", "nodes", "features", "classes", "labelled", "edges", "best"),
    [
        ("cora", 2708, 1433, 7, 140, 10556, 0.319),
        ("citeseer", 3327, 3703, 6, 120, 9104, None),
        ("pubmed", 19717, 500, 3, 60, 88648, None),
    ],
)
def test_real_planetoid_counts(name, nodes, features, classes, labelled, edges, best):
    task = load_task(name)
    assert task.x.shape == (nodes, features)
    assert task.classes == classes
    assert (task.train.sum(), task.validation.sum(), task.test.sum()) == (labelled, 500, 1000)
    assert task.adjacency.nnz == edges
    assert (task.adjacency != task.adjacency.T).nnz == 0
    if best:
        assert task.best_constant == pytest.approx(best)
    assert int((task.x.sum(1) == 0).sum()) == (15 if name == "citeseer" else 0)  # nodes that the files leave out
