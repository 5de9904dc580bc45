"""Turn drawn PNGs into the small ones of docs/images: the same pixels, 64 colours.

Example: creditscope figure all results/paper --out out/figures/paper
         python docs/shrink_images.py out/figures/paper
"""

import sys
from pathlib import Path

from PIL import Image

COLOURS = 64
IMAGES = Path(__file__).parent / "images"


def shrink(source: Path, target: Path) -> None:
    """One image with a palette of its own, without dithering, so that lines and letters stay crisp."""
    with Image.open(source) as image:
        small = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(target, optimize=True)


if __name__ == "__main__":
    for source in sorted(Path(sys.argv[1]).glob("*.png")):
        shrink(source, IMAGES / source.name)
        print(f"{source.name}: {(IMAGES / source.name).stat().st_size:,} bytes")
