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
    images, labels = np.asarray(pixels, dtype=np.float32), np.asarray(digit, dtype=np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order], labels[order]
    images = images.reshape(-1, 1, 8, 8) if image else images
    x_train, x_test = images[:-TEST_ROWS], images[-TEST_ROWS:]
    mean, std = x_train.mean(), x_train.std()
    return Task(
        name="digits",
        x_train=(x_train - mean) / std,
        y_train=labels[:-TEST_ROWS],
        x_test=(x_test - mean) / std,
        y_test=labels[-TEST_ROWS:],
        classes=10,
    )
