"""What tests ask of a page in a browser: what went wrong on it, what sticks out, what axe-core and paper say."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
from playwright.sync_api import Browser, Dialog, Page, PdfMargins
from prepare import AXE

FLAGS = ["--no-sandbox", "--no-first-run"]
FLAGS += [f"--disable-{part}" for part in ("gpu", "quic", "background-networking", "component-update", "sync")]
PATIENCE = 10_000
"""Milliseconds after which something that is waited for will not come."""
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
PAPER_MARGINS = PdfMargins(top="1cm", right="1cm", bottom="1cm", left="1cm")
"""What a browser leaves by default; a page may ask for more."""
WHITE = 240
"""The darkest shade, of 255, that counts as white."""
MARGIN = 18
"""Points of a printed page that stay white on every side: a quarter of an inch."""


@dataclass
class Opened:
    """A page and everything on it that no reader should meet: errors, dialogs, requests."""

    page: Page
    problems: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Browser, file: Path, *, site: Path | None = None, **options: Any) -> Iterator[Opened]:
    """The file in a fresh profile that cannot reach a network, watched from its first request on.

    It may ask for nothing else, or, as part of a site, for files of that folder.
    """
    context = browser.new_context(**{"viewport": DESKTOP, "offline": True, "reduced_motion": "reduce", **options})
    try:
        context.set_default_timeout(PATIENCE)
        found = Opened(context.new_page())
        _watch(found, file.resolve().as_uri(), site.resolve().as_uri() if site else None)
        found.page.goto(file.resolve().as_uri())
        yield found
    finally:
        context.close()


def _watch(found: Opened, own: str, site: str | None) -> None:
    """Note errors on the console and in scripts, dialogs, and requests for anything but the page or its site."""
    free = (*[f"{site}/"] * bool(site), "data:", "blob:")

    def note(problem: str, unless: bool = False) -> None:
        found.problems.extend([] if unless else [problem])

    def note_request(address: str) -> None:
        note(f"request for {address}", unless=address.partition("#")[0] == own or address.startswith(free))

    def note_dialog(dialog: Dialog) -> None:
        note(f"dialog: {dialog.message}")
        dialog.dismiss()

    page = found.page
    page.context.on("request", lambda request: note_request(request.url))
    page.on("console", lambda said: note(f"console: {said.text}", unless=said.type not in ("error", "warning")))
    page.on("dialog", note_dialog)
    page.on("pageerror", lambda error: note(f"error: {error}"))
    page.on("websocket", lambda socket: note_request(socket.url))


OUTSIDE = """() => {
  const name = e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + ' '
    + JSON.stringify((e.textContent || '').trim().slice(0, 40));
  const scrolls = e => {
    for (let up = e.parentElement; up && up !== document.body; up = up.parentElement) {
      const css = getComputedStyle(up);
      if (/(auto|scroll)/.test(css.overflowX) && up.getBoundingClientRect().right <= innerWidth + 0.5) return true;
      if (up instanceof SVGElement && !(up.parentElement instanceof SVGElement)
          && up.getBoundingClientRect().right <= innerWidth + 0.5) return true;
    }
    return false;
  };
  const found = [];
  const root = document.scrollingElement;
  if (root.scrollWidth > innerWidth) found.push(`the page is ${root.scrollWidth} wide in ${innerWidth}`);
  for (const e of document.body.querySelectorAll('*')) {
    if (!e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
    const box = e.getBoundingClientRect(), css = getComputedStyle(e);
    if (box.width <= 1 || box.height <= 1 || box.right <= 0 || css.clipPath !== 'none') continue;
    if ((box.right > innerWidth + 0.5 || box.left < -0.5) && !scrolls(e)) found.push(name(e));
  }
  return found;
}"""


def outside(page: Page) -> list[str]:
    """Visible elements that stick out of the viewport's sides and that no container scrolls to.

    What lies wholly to the left of it waits there on purpose, as links to skip to the content do.
    """
    return page.evaluate(OUTSIDE)


CLIPPED = """() => {
  const found = [];
  for (const e of document.body.querySelectorAll('td, th, p, h1, h2, h3, li, summary, label, button, dt, dd')) {
    if (!e.checkVisibility()) continue;
    const css = getComputedStyle(e);
    if (/(hidden|clip)/.test(css.overflowX) && e.scrollWidth > e.clientWidth + 1 && css.textOverflow !== 'ellipsis'
        && e.clientWidth > 1) found.push(e.tagName.toLowerCase() + ' ' + e.textContent.trim().slice(0, 40));
  }
  return found;
}"""


def clipped(page: Page) -> list[str]:
    """Texts whose end is cut off by their own box."""
    return page.evaluate(CLIPPED)


def violations(page: Page) -> list[str]:
    """What axe-core calls serious or critical, each with the first places it found."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations'], preload: false})).violations"
    )
    return [
        f"{v['impact']} {v['id']} ({len(v['nodes'])}): " + "; ".join(str(n["target"]) for n in v["nodes"][:3])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


@dataclass(frozen=True)
class Sheet:
    """One printed page: its text, how much ink lies in its margins, and how bright its ground is (of 255)."""

    text: str
    margin_ink: int
    ground: float


def printed(page: Page) -> list[Sheet]:
    """The page as printed on A4, sheet by sheet."""
    with closing(pypdfium2.PdfDocument(page.pdf(format="A4", print_background=True, margin=PAPER_MARGINS))) as document:
        return [_read_sheet(sheet) for sheet in document]


def _read_sheet(sheet: pypdfium2.PdfPage) -> Sheet:
    """Margins are looked at on an image of one pixel per point; not quite white counts as ink."""
    image = sheet.render(scale=1).to_numpy()[..., :3]
    dark = (image < WHITE).any(axis=-1)
    dark[MARGIN:-MARGIN, MARGIN:-MARGIN] = False
    text = sheet.get_textpage()
    return Sheet(" ".join(text.get_text_bounded().split()), int(dark.sum()), float(np.median(image)))
