"""Sizes that make no net are refused with what was expected."""

import pytest

from creditscope.errors import CreditscopeError
from creditscope.registry import NETS


@pytest.mark.parametrize(
    ("net", "shape", "options", "message"),
    [
        ("student", (6,), {"depth": 0}, "but got depth 0"),
        ("student", (6,), {"alpha": 1.5}, "but got .* alpha 1.5"),
        ("vit", (3, 8, 8), {"depth": 0}, "but got depth 0"),
        ("vit", (3, 8, 8), {"width": 10, "heads": 4}, "but got .* width 10 and 4 heads"),
        ("vit", (3, 8, 10), {"patch": 4, "width": 8, "heads": 2}, "patches, but got 8×10"),
    ],
)
def test_sizes(net, shape, options, message):
    with pytest.raises(CreditscopeError, match=f"Expected .*{message}"):
        NETS.get(net)(shape, 4, **options)
