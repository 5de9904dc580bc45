"""The site is whole: it builds without a warning, every page is found, no link is dead, and it is read offline."""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from documents import ROOT
from looking import DESKTOP, PHONE, outside, violations

pytestmark = pytest.mark.slow

SECTIONS = ("learn", "use", "reference", "evidence")
LIVE = "live-report.html"
"""Made by `make site`, not by Sphinx."""


def build(source: Path, site: Path) -> subprocess.CompletedProcess:
    """As `make site` does it."""
    words = ["-m", "sphinx", "-W", "--keep-going", "-q", "-c", str(ROOT / "docs"), str(source), str(site)]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, str]:
    found = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    return {path: path.read_text(encoding="utf-8") for path in found}


def find_targets(page: Path, text: str) -> set[tuple[Path, str]]:
    """The files that a page links to or loads, with the places in them; other people's addresses aside."""
    found = set()
    for address in re.findall(r'<[^>]+? (?:href|src)="([^"]+)"', text):
        parts = urlsplit(address)
        if not parts.scheme:
            found.add(((page.parent / unquote(parts.path)).resolve() if parts.path else page, unquote(parts.fragment)))
    return found


class TestWhole:
    def test_every_page_is_in_the_navigation(self, site, pages):
        written = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.ipynb")]
        written += [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
        wanted = {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in written}
        found = {"docs/index.html", *(f"docs/{name}.html" for name in SECTIONS)}
        for name in SECTIONS:
            page = site / "docs" / f"{name}.html"
            [shown] = re.findall(r'<nav class="bd-docs-nav.*?</nav>', pages[page], re.DOTALL)
            found |= {path.relative_to(site).as_posix() for path, _ in find_targets(page, shown)}
        assert found == wanted

    def test_links_and_what_is_loaded_is_there(self, site, pages):
        targets = {target for page, text in pages.items() for target in find_targets(page, text)}
        assert {path for path, _ in targets if not path.exists()} == {site / LIVE}
        assert f"\nbuild/site/{LIVE}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
        ids = {page: set(re.findall(r' id="([^"]+)"', text)) for page, text in pages.items()}
        assert [(p.name, place) for p, place in targets if place and p in ids and place not in ids[p]] == []

    def test_nothing_is_loaded_from_elsewhere(self, site, pages):
        elsewhere = "(?:https?:)?//"
        tags = r"<(?:script|img|iframe|link|source|video|object|embed)\b[^>]*? (?:src|srcset|data|href)="
        for page, text in pages.items():
            assert re.findall(rf'{tags}"{elsewhere}[^"]*"', text) == [], page.name
        for style in site.rglob("*.css"):
            text = style.read_text(encoding="utf-8")
            assert re.findall(rf"(?:url\(|@import )['\"]?{elsewhere}", text) == [], style.name

    def test_the_index_of_the_search(self, site):
        text = (site / "searchindex.js").read_text(encoding="utf-8")
        index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
        pages = index["docnames"]
        assert {"examples/your_loop", "docs/checks/CS005", "docs/commands"} <= set(pages)
        for word in ("kolen", "lillicrap"):
            has = {page for page in pages if (ROOT / f"{page}.md").is_file() and word in read(page)}
            found = index["terms"][word]
            assert {pages[i] for i in (found if isinstance(found, list) else [found])} == has
        assert {"run", "watch", "Scope"} <= {entry[-1] for entry in index["objects"]["creditscope"]}


def read(page: str) -> str:
    """What is written on a page, in small letters."""
    return (ROOT / f"{page}.md").read_text(encoding="utf-8").lower()


def test_a_dead_link_and_a_page_that_nobody_finds_are_errors(tmp_path):
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    (source / "docs" / "index.md").write_text("# Here\n\n- [Found](found.md)\n- [a](gone.md), [b](found.md#no-place)\n")
    (source / "docs" / "found.md").write_text("# Found\n")
    (source / "docs" / "alone.md").write_text("# Alone\n")
    done = build(source, tmp_path / "site")
    assert done.returncode != 0
    said = done.stderr
    assert all(re.search(rf"WARNING:.*{lost}", said) for lost in ("gone", "no-place", "alone.md|isn't included")), said


class TestRead:
    """From disk, in a browser without network."""

    def test_search_finds(self, visit, site):
        page = visit(site / "index.html", site=site)
        page.wait_for_url("**/docs/index.html")
        page.keyboard.press("Control+k")
        page.keyboard.type("kolen pollack")
        page.keyboard.press("Enter")
        page.wait_for_selector("#search-results li")
        found = page.locator("#search-results li a")
        assert any("docs/studies.html" in (found.nth(i).get_attribute("href") or "") for i in range(found.count()))
        found.first.click()
        assert "olen" in page.locator("article").inner_text()

    def test_a_public_name_is_found_first(self, visit, site):
        page = visit(site / "search.html", site=site)
        page.goto(f"{(site / 'search.html').as_uri()}?q=suggest_taps")
        page.wait_for_selector("#search-results li")
        first = page.locator("#search-results li a").first.get_attribute("href")
        assert first == "docs/api.html#creditscope-suggest-taps"

    @pytest.mark.parametrize("name", ["index", "reproduction"])
    def test_on_a_phone_in_the_dark(self, visit, site, name):
        page = visit(site / "docs" / f"{name}.html", site=site, viewport=PHONE, color_scheme="dark")
        assert outside(page) == []
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"

    @pytest.mark.parametrize("looks", [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
    def test_axe_finds_nothing_serious(self, visit, site, axe, looks):
        view, scheme = looks
        assert violations(visit(site / "docs" / "checks.html", site=site, viewport=view, color_scheme=scheme)) == []
