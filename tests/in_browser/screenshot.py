"""Write docs/images/report*.png: of the shipped records the head, the table, a method, the grid, and a phone's view."""

import os
import tempfile
from pathlib import Path

from looking import FLAGS, PHONE, opened
from playwright.sync_api import Page, sync_playwright
from prepare import CHROMIUM

from creditscope.cli import main

ROOT = Path(__file__).parents[2]
RECORDS = "results/paper"
SCREEN = {"width": 1280, "height": 860}
TOP = "(selector) => document.querySelector(selector).scrollIntoView()"


def take_screenshots(records: str, folder: Path) -> None:
    """Make the report of these records, and photograph what docs/report.md tells."""
    with tempfile.TemporaryDirectory() as made, sync_playwright() as driver:
        file = Path(made) / "report.html"
        main(["report", "--records", records, "--out", str(file)])
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with opened(browser, file, viewport=SCREEN) as found:
            page = found.page
            page.screenshot(path=folder / "report.png")
            page.locator(".tile[data-word=undecided]").click()
            _shoot(page, "#shown", folder / "report_undecided.png")
            page.locator("#filters button", has_text="Clear").click()
            page.locator("#filters button", has_text="Grid").click()
            _shoot(page, "#shown", folder / "report_grid.png", height=520)
            page.locator("#filters button", has_text="Clear").click()
            page.set_viewport_size({**SCREEN, "height": 1040})
            page.locator("tr[data-method=DFA] th a").first.click()
            page.locator(".opened .method").wait_for()
            page.evaluate(TOP, "tr[data-method=DFA]")
            page.locator(".opened [data-quantity=cos]").hover()
            page.screenshot(path=folder / "report_layers.png")
        with opened(browser, file, viewport=PHONE, color_scheme="dark") as found:
            _shoot(found.page, "tr[data-method=DFA]", folder / "report_phone.png")
        browser.close()


def _shoot(page: Page, selector: str, path: Path, height: int = 0) -> None:
    """What stands below the bar once this is on top."""
    page.evaluate(TOP, selector)
    size = page.viewport_size or SCREEN
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": size["width"], "height": height or size["height"]})


if __name__ == "__main__":
    os.chdir(ROOT)  # the page names its folder as it was asked for
    take_screenshots(RECORDS, Path("docs/images"))
