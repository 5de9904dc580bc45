"""Every report, on a wide and a narrow screen, in light and dark: nothing sticks out, nobody is shut out or waits."""

import re

import pytest
from looking import DESKTOP, PHONE, clipped, outside, violations

pytestmark = pytest.mark.slow

GROUND = "() => [document.body, document.documentElement].map(e => getComputedStyle(e).backgroundColor).join()"


def open_all(page) -> None:
    """Open everything that can be folded."""
    page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_and_axe_finds_nothing_serious(visit, report, axe, scheme):
    page = visit(report("small"), color_scheme=scheme)
    for screen in (DESKTOP, PHONE):
        page.set_viewport_size(screen)
        assert outside(page) == []
        open_all(page)
        page.locator("[data-heatmap]").first.press("Enter")
        assert page.locator("#detail").is_visible()
        assert outside(page) == []
        assert clipped(page) == []
        assert violations(page) == []
        page.reload()


@pytest.mark.parametrize("name", ["large", "hostile", "sparse", "empty"])
def test_nothing_sticks_out_whatever_the_records(visit, report, name):
    page = visit(report(name), viewport=PHONE)
    assert outside(page) == []
    open_all(page)
    assert outside(page) == []
    page.set_viewport_size(DESKTOP)
    assert outside(page) == []


def test_dark_is_dark_and_light_is_light(visit, report):
    page = visit(report("small"))

    def brightness(scheme: str) -> float:
        page.emulate_media(color_scheme=scheme)
        shades = re.findall(r"rgb\((\d+), (\d+), (\d+)\)", page.evaluate(GROUND))
        return sum(map(int, shades[0])) / 3

    assert brightness("light") > 200
    assert brightness("dark") < 80


CLICKS = """(clicks) => {
  const heats = [...document.querySelectorAll('[data-heatmap]')];
  const times = [];
  for (let i = 0; i < clicks; i++) {
    const heat = heats[i % heats.length];
    heat.scrollIntoView({block: 'center'});
    const box = heat.getBoundingClientRect();
    const at = {bubbles: true, clientX: box.x + box.width * 0.5, clientY: box.y + box.height * 0.4};
    document.body.offsetHeight;
    const before = performance.now();
    heat.dispatchEvent(new MouseEvent('click', at));
    document.getElementById('detail').offsetHeight;
    times.push(performance.now() - before);
  }
  if (document.getElementById('detail').hidden) throw Error('no click was answered');
  return times.sort((a, b) => a - b)[clicks / 2];
}"""
"""The median time of a click and of the layout after it, in milliseconds."""
TICK = 0.2
"""What the browser's clock can tell apart, twice."""


def test_a_click_does_not_wait_for_the_rest_of_the_page(visit, report):
    """It answers on a page of many records about as fast as on a small one; nothing here is held to seconds."""
    small, large = (visit(report(name), viewport=DESKTOP) for name in ("small", "large"))
    sizes = [page.locator("*").count() * len(page.content()) for page in (small, large)]
    assert sizes[1] > 10 * sizes[0]
    quick = min(small.evaluate(CLICKS, 60) for _ in range(3))
    slow = min(large.evaluate(CLICKS, 60) for _ in range(3))
    assert slow < 5 * (quick + TICK), (slow, quick)
