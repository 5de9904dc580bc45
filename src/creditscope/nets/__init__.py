"""Nets: plain `nn.Module`s that know nothing of rules, seeds or measuring; one file each."""

from collections.abc import Callable
from typing import Any, TypeVar

from creditscope.errors import CreditscopeError
from creditscope.registry import NETS
from creditscope.tasks import KINDS, TaskKind

N = TypeVar("N", bound=type)


def register_net(name: str) -> Callable[[N], N]:
    """Class decorator that makes a net known by `name`.

    The net takes the shape of an input and the number of classes, then keyword options with defaults; it says as class
    attributes which modules are taps, `stem_tap` (tap 0: a name, or None) and `block_taps` (taps 1..L: a glob), and
    which kinds of task it `accepts` (any, if it does not say). One that mostly `convolves` (True) has its seeds trained
    side by side on a GPU with several workers, not as a stack.

    >>> from torch import nn
    >>> import creditscope as cs
    >>> @cs.register_net("two_layers")
    ... class TwoLayers(nn.Sequential):
    ...     stem_tap, block_taps = "0", "1"
    ...
    ...     def __init__(self, input_shape, classes, *, width=16):
    ...         block = nn.Sequential(nn.Linear(width, width), nn.ReLU())
    ...         super().__init__(nn.Linear(*input_shape, width), block, nn.Linear(width, classes))
    >>> cs.run(net="two_layers", task="digits", seeds=1, epochs=1, tier="quick").records[0].facts.taps
    ('0', '1')
    """

    def keep(cls: N) -> N:
        check_net(name, cls)
        return NETS.register(name)(cls)

    return keep


def check_net(name: str, cls: Any) -> None:
    """Refuse what does not say its taps, or accepts tasks of an unknown kind."""
    stem, blocks = getattr(cls, "stem_tap", ""), getattr(cls, "block_taps", None)
    if not (stem is None or (isinstance(stem, str) and stem)) or not isinstance(blocks, str):
        raise CreditscopeError(
            f"Expected net {name!r} to have class attributes stem_tap (a module's name or None) and block_taps "
            f"(a glob such as 'blocks.*'), but got {stem!r} and {blocks!r}."
        )
    if strange := [kind for kind in accepted_kinds(cls) if kind not in KINDS]:
        raise CreditscopeError(f"Expected accepts of net {name!r} to be among {KINDS}, but got {strange}.")


def accepted_kinds(net_class: type) -> tuple[TaskKind, ...]:
    """The kinds of task a net takes; one that does not say takes any."""
    return tuple(getattr(net_class, "accepts", KINDS))


__all__ = ["accepted_kinds", "check_net", "register_net"]
