"""Backprop: a_l = g_l, the exact gradient; the reference for all others."""

from creditscope.rules import WeightRule, register_rule


@register_rule("bp")
class BP(WeightRule):
    """a_l = g_l."""

    label = "BP"
    formula = "a_l = g_l"
