"""A figure that moves: the same page at one moment after the other, as a GIF."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from creditscope.plots._style import styled

DPI = 150
"""Letters of 7.5 pt are then as large as those of the page around it, where it is shown pixel by pixel."""
COLOURS = 240
STEP, HOLD = 280, 4000
"""How long a moment and the last one stay, milliseconds."""


@dataclass(frozen=True)
class Film:
    """A laid out figure, how many moments it has, and what shows one of them on it."""

    figure: Figure
    moments: int
    show: Callable[[int], None]

    def to_gif(self) -> bytes:
        """All moments in turn, again and again; the last, which stays, gives the colours."""
        frames = []
        for moment in range(self.moments):
            self.show(moment)
            with styled():
                self.figure.savefig(drawn := BytesIO(), format="png", dpi=DPI)
            frames.append(Image.open(drawn).convert("RGB"))
        shown = [limit_colours(frame, frames[-1]) for frame in frames]
        times = [STEP] * (self.moments - 1) + [HOLD]
        shown[0].save(written := BytesIO(), "GIF", save_all=True, append_images=shown[1:], duration=times, loop=0)
        return written.getvalue()


def limit_colours(image: Image.Image, source: Image.Image) -> Image.Image:
    """With the most frequent colours of `source`, seams of letters at the next of them; lines stay crisp undithered.

    Colours that are averaged would no longer be those of the rules, and Pillow's own search takes nearly white for
    white.
    """
    found, counts = np.unique(_codes(source), return_counts=True)
    kept = _colours(found[np.argsort(-counts, kind="stable")[:COLOURS]])
    seen, places = np.unique(_codes(image), return_inverse=True)
    nearest = ((_colours(seen)[:, None] - kept[None]) ** 2).sum(axis=-1).argmin(axis=1).astype(np.uint8)
    made = Image.fromarray(nearest[places].reshape(image.height, image.width))
    made.putpalette(kept.astype(np.uint8).tobytes())
    return made


def _codes(image: Image.Image) -> np.ndarray:
    """Pixels as one number each."""
    return np.asarray(image, dtype=int).reshape(-1, 3) @ (65536, 256, 1)


def _colours(codes: np.ndarray) -> np.ndarray:
    return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1)
