"""4,000 + 1,000 signals of length 40 in ten classes, generated offline; depth matters on it.

Greydanus & Kobak, "Scaling down deep learning with MNIST-1D" (2020), arXiv:2011.14439.
"""

import random

import numpy as np

from creditscope.tasks import Task, register_task


@register_task("mnist1d", version="mnist1d-0.0.2-seed42")
def mnist1d() -> Task:
    """The package's default data set, made without touching the global random streams."""
    from mnist1d.data import get_dataset_args, make_dataset

    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        data = make_dataset(get_dataset_args())
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)
    x, x_test = (data[name].astype(np.float32) for name in ("x", "x_test"))
    y, y_test = (data[name].astype(np.int64) for name in ("y", "y_test"))
    return Task("mnist1d", x, y, x_test, y_test, classes=10)
