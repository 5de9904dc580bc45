"""Write docs/images/report.png: the top of the report of the shipped records, as a reader first sees it."""

import os
import tempfile
from pathlib import Path

from looking import FLAGS, opened
from playwright.sync_api import sync_playwright
from prepare import CHROMIUM

from creditscope.cli import main

ROOT = Path(__file__).parents[2]
RECORDS, IMAGE = Path("results/paper"), Path("docs/images/report.png")
SCREEN = {"width": 1280, "height": 1000}


def take_screenshot(records: Path, image: Path) -> None:
    """Make the report of these records and photograph its first screen."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "report.html"
        main(["report", "--records", str(records), "--out", str(file)])
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        with opened(browser, file, viewport=SCREEN) as found:
            image.parent.mkdir(parents=True, exist_ok=True)
            found.page.screenshot(path=image)
        browser.close()


if __name__ == "__main__":
    os.chdir(ROOT)  # the page names its folder as it was asked for
    take_screenshot(RECORDS, IMAGE)
    print(f"wrote {IMAGE}")
