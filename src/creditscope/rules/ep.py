"""Equilibrium propagation on a feedforward net: the difference of states nudged towards and away from the target.

Scellier & Bengio, "Equilibrium propagation" (Frontiers in Computational Neuroscience, 2017); Laborieux et al., "Scaling
equilibrium propagation to deep ConvNets" (Frontiers in Neuroscience, 2021), who centre it. The energy is that of
predictive coding, ½ Σ‖s_l − F_l(s_{l−1})‖², whose free phase is the plain forward (Millidge et al., "Backpropagation at
the infinitesimal inference limit of energy-based models", ICLR 2023); the layered Hopfield net is another net.
"""

from torch import Tensor

from creditscope.rules import CreditContext, TapRule, register_rule
from creditscope.rules.pc import check_settling, fall, settle


@register_rule("ep")
class EP(TapRule):
    """a_l = −(ε_l(β) − ε_l(−β))/2β, whose error falls as β²; −ε_l(β)/β, as β, if it is not `centred`.

    β is in units of the loss against ½‖ε‖², so that its meaning changes with ‖g‖ and depth.
    """

    label = "EP"
    formula = "a_l = −(ε_l(β) − ε_l(−β))/2β,  ε ← ε − η(ε + β g(ε)),  T times"

    def __init__(self, *, beta: float = 0.01, steps: int = 8, rate: float = 0.3, centred: bool = True):
        check_settling(beta, steps, rate)
        self.beta, self.steps, self.rate, self.centred = beta, steps, rate, centred
        self.passes = 3.0 * (2 * steps - 1 if centred else steps)  # the first is alike on both sides

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        first = fall(ctx)
        nudged = settle(ctx, self.beta, self.steps, self.rate, first)
        if not self.centred:
            return [-e / self.beta for e in nudged]
        other = settle(ctx, -self.beta, self.steps, self.rate, first)
        return [(b - a) / (2 * self.beta) for a, b in zip(nudged, other, strict=True)]
