"""CIFAR-10: 50,000 + 10,000 colour images of 32×32 pixels in ten classes, with padded random crops and flips.

Krizhevsky, "Learning multiple layers of features from tiny images" (2009). Reads the official Python batches or
the binary version; held as uint8.
"""

from pathlib import Path

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.tasks import ImageSettings, Task, register_task
from creditscope.tasks._files import DataFiles, read_pickle

HOME = "https://www.cs.toronto.edu/~kriz"
IMAGE = 3 * 32 * 32
PYTHON = DataFiles(
    task="cifar10",
    folder="cifar-10-batches-py",
    checksums={
        "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
        "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
        "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "md5:40351d587109b95175f43aff81a1287e",
    },
    url=f"{HOME}/cifar-10-python.tar.gz",
    archive="md5:c58f30108f718f92721af3b95e74349a",
)
BINARY = DataFiles(
    task="cifar10",
    folder="cifar-10-batches-bin",
    checksums={
        "data_batch_1.bin": "md5:5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "md5:5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "md5:942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "md5:ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "md5:53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "md5:803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    url=f"{HOME}/cifar-10-binary.tar.gz",
    archive="md5:c32a1d4ab5d03f1284b67883e8d87530",
)
PIXELS = ImageSettings(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))


@register_task("cifar10", version="cifar10-2009")
def cifar10() -> Task:
    """The official split, in the files' own order."""
    files, read = (BINARY, read_binary) if BINARY.present() and not PYTHON.present() else (PYTHON, read_python)
    folder = files.require()
    *training, test = (read(folder / name) for name in files.checksums)
    images, labels = map(np.concatenate, zip(*training, strict=True))
    return Task("cifar10", images, labels, *test, classes=10, images=PIXELS)


def read_python(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (rows, 3, 32, 32) and labels of one official Python batch."""
    batch = read_pickle(path)
    try:
        images, labels = batch["data"], batch["labels"]
        return _rows(images, path), np.array(labels, dtype=np.int64)
    except (KeyError, TypeError) as error:
        raise CreditscopeError(f"Expected 'data' and 'labels' in {path}, but got {error!r}. Get it again.") from error


def read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The same of one binary batch: a label byte, then the image, for every row."""
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size == 0 or raw.size % (IMAGE + 1):
        raise CreditscopeError(f"Expected rows of {IMAGE + 1} bytes in {path}, but got {raw.size} bytes. Get it again.")
    rows = raw.reshape(-1, IMAGE + 1)
    return _rows(rows[:, 1:], path), rows[:, 0].astype(np.int64)


def _rows(images: np.ndarray, path: Path) -> np.ndarray:
    if images.dtype != np.uint8 or images.shape[1:] != (IMAGE,):
        raise CreditscopeError(
            f"Expected uint8 rows of {IMAGE} pixels in {path}, but got {images.dtype} of shape {images.shape}. "
            "Get it again."
        )
    return np.ascontiguousarray(images).reshape(-1, 3, 32, 32)
