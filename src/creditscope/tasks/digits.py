"""scikit-learn's 1,797 images of 8×8 pixels: almost linear, so a control on which depth is not needed."""

import numpy as np

from creditscope.tasks import Task, register_task

TEST_ROWS = 397


@register_task("digits", version="digits-sklearn-split0")
def digits(*, image: bool = False) -> Task:
    """1,400 training and 397 test rows by a fixed permutation, standardised with the training rows.

    Rows of 64 numbers, or with `image` images of one channel, for nets that cut them into patches.
    """
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digit))
    x, y = np.asarray(pixels, dtype=np.float32)[order], np.asarray(digit, dtype=np.int64)[order]
    x = x.reshape(-1, 1, 8, 8) if image else x
    mean, std = x[:-TEST_ROWS].mean(), x[:-TEST_ROWS].std()
    x = (x - mean) / std
    return Task("digits", x[:-TEST_ROWS], y[:-TEST_ROWS], x[-TEST_ROWS:], y[-TEST_ROWS:], classes=10)
