"""The residual penalty λ‖f_l‖² (sum over features, mean over rows), f_l = h_l − h_{l−1}."""

from collections.abc import Iterator

from torch import Tensor

from creditscope.anatomy import Anatomy
from creditscope.errors import CreditscopeError
from creditscope.taps import Forward


def check_penalty(penalty: float, anatomy: Anatomy) -> None:
    """Refuse a penalty that has no meaning on this net."""
    if penalty < 0:
        raise CreditscopeError(f"Expected a penalty λ >= 0, but got {penalty}.")
    if penalty and not any(anatomy.residual):
        raise CreditscopeError(
            f"Expected a net with residual blocks for a penalty of {penalty}, but no block of this net adds "
            "to the state before it. Use penalty 0."
        )


def block_changes(forward: Forward, anatomy: Anatomy) -> Iterator[tuple[int, Tensor]]:
    """(l, f_l) for every residual stage, detached."""
    for i, adds in enumerate(anatomy.residual):
        if adds:
            yield i, forward.states[i].detach() - forward.states[i - 1].detach()
