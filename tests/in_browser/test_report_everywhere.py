"""Every report, on a wide and a narrow screen, in light and dark: nothing sticks out, and nobody is shut out."""

import re

import pytest
from looking import DESKTOP, PHONE, clipped, outside, violations

pytestmark = pytest.mark.slow

GROUND = (
    "() => getComputedStyle(document.body).backgroundColor + getComputedStyle(document.documentElement).backgroundColor"
)


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
