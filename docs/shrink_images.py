"""Turn drawn PNGs into the small ones of docs/images: the same pixels, their 64 most frequent colours.

Example: creditscope figure all results/paper --out out/figures/paper
         python docs/shrink_images.py out/figures/paper
"""

import sys
from pathlib import Path
from typing import Any

from PIL import Image

COLOURS = 64
IMAGES = Path(__file__).parent / "images"


def shrink(source: Path, target: Path) -> None:
    """One image with its own colours, the seams of letters at the next of them; no dithering, so that lines stay crisp.

    Colours that are averaged would no longer be those of the rules.
    """
    with Image.open(source) as opened:
        image = opened.convert("RGB")
    counts: Any = image.getcolors(image.width * image.height)
    kept = [part for _, colour in sorted(counts, reverse=True)[:COLOURS] for part in colour]
    palette = Image.new("P", (1, 1))
    palette.putpalette(kept + kept[:3] * (256 - len(kept) // 3))
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    for source in sorted(Path(sys.argv[1]).glob("*.png")):
        shrink(source, IMAGES / source.name)
        print(f"{source.name}: {(IMAGES / source.name).stat().st_size:,} bytes")
