"""A click answers on a page of many records about as fast as on a small one; nothing here is held to seconds."""

import pytest
from looking import DESKTOP

pytestmark = pytest.mark.slow

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
    small, large = (visit(report(name), viewport=DESKTOP) for name in ("small", "large"))
    sizes = [page.locator("*").count() * len(page.content()) for page in (small, large)]
    assert sizes[1] > 10 * sizes[0]
    quick = min(small.evaluate(CLICKS, 60) for _ in range(3))
    slow = min(large.evaluate(CLICKS, 60) for _ in range(3))
    assert slow < 5 * (quick + TICK), (slow, quick)
