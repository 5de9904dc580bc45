"""Direct random target projection: every layer is told a random projection of the target.

Frenkel, Lefebvre & Bol, "Learning without feedback: fixed random learning signals allow for feedforward training of
deep neural networks" (Frontiers in Neuroscience, 2021).
"""

from dataclasses import replace

from torch import Tensor

from creditscope.rules import CreditContext, register_rule
from creditscope.rules._spread import one_hot
from creditscope.rules.dfa import DFA


@register_rule("drtp")
class DRTP(DFA):
    """a_l = −B_l y*: the same for all samples of a class, whatever the error; the head learns from the error."""

    label = "DRTP"
    formula = "a_l = −B_l y*,  B_l ~ N(0, 1/C)"

    def __init__(self, *, tokens: str = "all"):
        super().__init__(tokens=tokens)

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        return super().credit(replace(ctx, error=-one_hot(ctx)))
