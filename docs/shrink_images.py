"""Turn drawn PNGs into the small ones of docs/images: the same pixels, their most frequent colours; a film as it is.

Example: creditscope figure all results/paper --out out/figures/paper
         creditscope figure fading results/paper --format png,gif --out out/figures/paper
         python docs/shrink_images.py out/figures/paper
"""

import shutil
import sys
from pathlib import Path

from PIL import Image

from creditscope.plots._film import limit_colours

IMAGES = Path(__file__).parent / "images"


def shrink(source: Path, target: Path) -> None:
    """One image with its own colours."""
    with Image.open(source) as opened:
        image = opened.convert("RGB")
    limit_colours(image, image).save(target, optimize=True)


if __name__ == "__main__":
    for source in sorted(Path(sys.argv[1]).glob("*.[pg][ni][gf]")):
        target = IMAGES / source.name
        shutil.copyfile(source, target) if source.suffix == ".gif" else shrink(source, target)
        print(f"{source.name}: {target.stat().st_size:,} bytes")
