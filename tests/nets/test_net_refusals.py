"""What makes no net is refused with what was expected."""

import pytest

from creditscope.errors import CreditscopeError
from creditscope.options import resolve_options
from creditscope.registry import NETS


@pytest.mark.parametrize(
    ("net", "shape", "options", "message"),
    [
        ("student", (6,), {"depth": 0}, "but got depth 0"),
        ("student", (6,), {"alpha": 1.5}, "but got .* alpha 1.5"),
        ("vit", (3, 8, 8), {"depth": 0}, "but got depth 0"),
        ("vit", (3, 8, 8), {"width": 10, "heads": 4}, "but got .* width 10 and 4 heads"),
        ("vit", (3, 8, 10), {"patch": 4, "width": 8, "heads": 2}, "patches, but got 8×10"),
        ("gcn", (6,), {"depth": 1}, "got depth 1"),
        ("gcn", (6,), {"gain": 0.0}, "gain 0.0"),
        ("gcn", (6,), {"norm": "batch"}, "'batch'. Choices: none, pair"),
        ("gcn", (6,), {"dropout": 1.0}, "got 1.0"),
        ("gcn", (6,), {"residual": "perhaps"}, "'residual' .*bool"),
    ],
)
def test_what_makes_no_net(net, shape, options, message):
    with pytest.raises(CreditscopeError, match=f"Expected .*{message}"):
        NETS.get(net)(shape, 4, **resolve_options(NETS.get(net), options, owner=f"net {net!r}"))
