"""Write docs/images/report*.png: the top of the report of the shipped records, and its layers with one cell chosen."""

import os
import tempfile
from pathlib import Path

from looking import FLAGS, opened
from playwright.sync_api import sync_playwright
from prepare import CHROMIUM

from creditscope.cli import main

ROOT = Path(__file__).parents[2]
RECORDS = "results/paper"
SCREEN = {"width": 1280, "height": 1000}


def take_screenshots(records: str, folder: Path) -> None:
    """Make the report of these records; photograph its first screen, and the first heatmaps after a click on DFA's."""
    with tempfile.TemporaryDirectory() as made, sync_playwright() as driver:
        file = Path(made) / "report.html"
        main(["report", "--records", records, "--out", str(file)])
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with opened(browser, file, viewport=SCREEN) as found:
            found.page.screenshot(path=folder / "report.png")
            section = found.page.locator("#layers details.setting").first
            section.evaluate("e => e.scrollIntoView({block: 'start'})")
            section.locator("svg[data-heatmap][data-method='DFA']").first.click(position={"x": 120, "y": 40})
            found.page.screenshot(path=folder / "report_layers.png")
        browser.close()


if __name__ == "__main__":
    os.chdir(ROOT)  # the page names its folder as it was asked for
    take_screenshots(RECORDS, Path("docs/images"))
