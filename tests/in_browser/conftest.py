"""A browser for all tests of this folder, and the reports they look at. Without Chromium they are skipped."""

import json
from contextlib import ExitStack, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from looking import FLAGS, opened
from playwright.sync_api import sync_playwright
from prepare import AXE, CHROMIUM
from reports import HOSTILE, write_folder

from creditscope.cli import main


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    if not CHROMIUM.exists():
        pytest.skip("Tests in a browser need Debian's package chromium: apt-get install chromium.")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe():
    """Whether axe-core was fetched."""
    if not AXE.exists():
        pytest.skip("Tests of accessibility need axe-core: python tests/in_browser/prepare.py, with npm.")


@pytest.fixture
def visit(browser):
    """Open a file in a profile of its own; at the end, nothing may have gone wrong on any page visited."""
    with ExitStack() as visits:
        found = []

        def go(file: Path, **options):
            found.append(visits.enter_context(opened(browser, file, **options)))
            return found[-1].page

        yield go
    assert [problem for one in found for problem in one.problems] == []


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The folder of records of that name, written once."""
    root = tmp_path_factory.mktemp("records")

    return cache(lambda name: write_folder(root / (HOSTILE[1] if name == "hostile" else name), name))


@pytest.fixture(scope="session")
def report(tmp_path_factory, folder):
    """The page that `creditscope report` makes of the records of that name, alone in its folder, made once."""
    root = tmp_path_factory.mktemp("pages")

    @cache
    def make(name: str, against: str = "") -> Path:
        file = root / f"{name}{against}" / "report.html"
        words = ["--against", str(folder(against))] if against else []
        main(["report", "--records", str(folder(name)), "--out", str(file), *words])
        return file

    return make


@pytest.fixture(scope="session")
def judged(folder):
    """What `creditscope audit --json` says of the records of that name."""

    @cache
    def judge(name: str):
        with redirect_stdout(StringIO()) as out:
            main(["audit", str(folder(name)), "--json"])
        return json.loads(out.getvalue())

    return judge
