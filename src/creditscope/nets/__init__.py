"""Nets: plain `nn.Module`s that know nothing of rules, seeds or measuring; one file each.

A net class takes the input shape and the number of classes, then keyword options with defaults,
and names its taps: `stem` (tap 0) and `blocks` (taps 1..L, a glob).
"""

from creditscope.registry import NETS

register_net = NETS.register

__all__ = ["register_net"]
