"""Predictive coding in its error form: states settle by gradient descent on the prediction errors and the loss.

Whittington & Bogacz, "An approximation of the error backpropagation algorithm in a predictive coding network"
(Neural Computation, 2017); Goemaere et al., "Error optimization: overcoming exponential signal decay in deep
predictive coding networks" (ICML 2026), whose published settings are steps=5, rate=.001.
"""

from torch import Tensor, zeros_like

from creditscope.errors import CreditscopeError, one_of
from creditscope.rules import Credit, CreditContext, TapRule, register_rule
from creditscope.rules._pass import gradient


def fall(ctx: CreditContext, at: list[Tensor] | None = None, beta: float = 1.0) -> list[Tensor]:
    """−β ∂ℓ/∂ε_l at errors ε (None: 0), where tap l hands on s_l = F_l(s_{l−1}) + ε_l."""
    at = [zeros_like(h) for h in ctx.states] if at is None else at
    return gradient(lambda errors: -beta * ctx.loss(ctx.forward(shift=errors).output).sum(), at)


def settle(ctx: CreditContext, beta: float, steps: int, rate: float, first: list[Tensor]) -> list[Tensor]:
    """ε after `steps` of descent on E = ½ Σ‖ε_l‖² + βℓ from ε = 0, where `first` is the fall of ℓ."""
    errors = [rate * beta * down for down in first]
    for _ in range(steps - 1):
        errors = [e.lerp(down, rate) for e, down in zip(errors, fall(ctx, errors, beta), strict=True)]
    return errors


def check_settling(beta: float, steps: int, rate: float) -> None:
    """Refuse options that settle nothing."""
    if beta <= 0 or steps < 1 or rate <= 0:
        raise CreditscopeError(
            f"Expected beta > 0, steps >= 1 and rate > 0, but got beta {beta}, steps {steps}, rate {rate}."
        )


@register_rule("pc")
class PC(TapRule):
    """a_l = −ε_l/β after T `steps`; one step gives rate·g_l, and at equilibrium ε_l = −β g_l of the *settled* net.

    With `inputs` forward, stages learn at the states of the forward; settled, at the states that settled, as in the
    literature: these know the label.
    """

    label = "PC"
    formula = "a_l = −ε_l/β,  ε ← ε − η(ε + β g(ε)),  T times"

    def __init__(self, *, beta: float = 1.0, steps: int = 8, rate: float = 0.3, inputs: str = "forward"):
        check_settling(beta, steps, rate)
        self.beta, self.steps, self.rate = beta, steps, rate
        self.inputs = one_of("inputs of stages", inputs, ("forward", "settled"))
        self.hands_on = inputs == "settled"
        self.passes = 3.0 * steps + 2 * self.hands_on  # the settled states, and the pass that stages learn in

    def credit(self, ctx: CreditContext) -> list[Tensor] | Credit:
        errors = settle(ctx, self.beta, self.steps, self.rate, fall(ctx))
        credit = [-e / self.beta for e in errors]
        if not self.hands_on:
            return credit
        settled = ctx.forward(shift=errors).states
        return Credit(credit, [h + e for h, e in zip(settled, errors, strict=True)])
