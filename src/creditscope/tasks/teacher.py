"""Teacher and student: Gaussian inputs labelled by a fixed random net of the student's own class; no data needed."""

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.tasks import Task, register_task

WIDTH, CLASSES, TRAIN, TEST = 128, 10, 10_000, 2_000
TEACHER_SEED = 1


@register_task("teacher", version="teacher-1")
def teacher(*, alpha: float = 1.0, depth: int = 4, noise: float = 0.0) -> Task:
    """x ~ N(0, I_128); labels = argmax of the teacher's logits centred over the data; a share `noise` is redrawn.

    The teacher is h ← h + φ_α(W h + b), φ_α(z) = (1 − α) z + α tanh(z), between two linear maps, all with the
    default initialisation of linear layers, uniform in ±1/√128.
    """
    if not 0 <= alpha <= 1 or not 0 <= noise <= 1 or depth < 1:
        raise CreditscopeError(
            f"Expected alpha and noise from 0 to 1 and depth >= 1, but got alpha {alpha}, noise {noise}, depth {depth}."
        )
    rng = np.random.default_rng(TEACHER_SEED)
    x = rng.normal(size=(TRAIN + TEST, WIDTH))
    logits = _teach(x, rng, alpha=alpha, depth=depth)
    y = (logits - logits.mean(0)).argmax(1)
    redrawn = rng.random(len(y)) < noise
    y = np.where(redrawn, rng.integers(CLASSES, size=len(y)), y)
    x = x.astype(np.float32)
    return Task("teacher", x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:], CLASSES)


def _teach(x: np.ndarray, rng: np.random.Generator, *, alpha: float, depth: int) -> np.ndarray:
    bound = WIDTH**-0.5

    def linear(h: np.ndarray, outputs: int) -> np.ndarray:
        weight, bias = rng.uniform(-bound, bound, (outputs, WIDTH)), rng.uniform(-bound, bound, outputs)
        return h @ weight.T + bias

    h = linear(x, WIDTH)
    for _ in range(depth):
        z = linear(h, WIDTH)
        h = h + (1 - alpha) * z + alpha * np.tanh(z)
    return linear(h, CLASSES)
