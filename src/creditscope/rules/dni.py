"""Decoupled neural interfaces: every tap has a net that predicts its gradient from the state and the label.

Jaderberg et al., "Decoupled neural interfaces using synthetic gradients" (ICML 2017); Czarnecki et al., "Understanding
synthetic gradients and decoupled neural interfaces" (ICML 2017).
"""

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import gradient, pull_back
from creditscope.rules._small_nets import adam, draw_mlp, draw_moments, mlp
from creditscope.rules._spread import feature_size, features_back, features_last, one_hot


@register_rule("dni")
class DNI(TapRule):
    """a_L = g_L, a_l = M_l(h_l, y*), M_l learned by Adam (`rate`) to predict J_{l+1}ᵀ a_{l+1}, starting at 0.

    M_l is an MLP with one hidden layer of `hidden` units (0: linear), on the features of every place; without `labels`
    it sees the state alone. The stage above is differentiated exactly: weights are transported within a stage.
    """

    label = "DNI"
    formula = "a_L = g_L,  a_l = M_l(h_l, y*),  M_l → J_{l+1}ᵀ a_{l+1}"
    needs_feedback = True
    needs_top_gradient = True
    learns_feedback = True
    passes = 3.0

    def __init__(self, *, hidden: int = 256, rate: float = 1e-3, labels: bool = True):
        if hidden < 0 or rate <= 0:
            raise CreditscopeError(f"Expected hidden >= 0 and rate > 0, but got hidden {hidden}, rate {rate}.")
        self.hidden, self.rate, self.labels = hidden, rate, labels

    def exact_taps(self, count: int) -> tuple[int, ...]:
        return (count - 1,)

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> dict:
        """The weights of every M_l, and Adam's moments."""
        features = [feature_size(shape) for shape in tap_shapes[:-1]]
        inner, seen = [self.hidden] if self.hidden else [], classes if self.labels else 0
        nets = [draw_mlp([d + seen, *inner, d], generator, last=0.0) for d in features]
        return {"M": nets, "moments": draw_moments(nets)}

    def learn_feedback(self, ctx: CreditContext) -> dict:
        told = self.credit(ctx)
        wanted = pull_back(lambda *below: ctx.forward.stages([*below, ctx.states[-1]])[:-1], ctx.states[:-1], told[1:])
        seen = self._seen(ctx)

        def loss(nets: list) -> Tensor:
            trios = zip(nets, seen, wanted, strict=True)
            off = [(mlp(M, x) - features_last(w)).square().sum() for M, x, w in trios]
            return torch.stack(off).sum() / len(ctx.error)

        nets, moments = adam(ctx.feedback["M"], gradient(loss, ctx.feedback["M"]), ctx.feedback["moments"], self.rate)
        return {"M": nets, "moments": moments}

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        assert ctx.top_gradient is not None
        trios = zip(ctx.feedback["M"], self._seen(ctx), ctx.states, strict=False)
        return [*(features_back(mlp(M, x), h) for M, x, h in trios), ctx.top_gradient]

    def _seen(self, ctx: CreditContext) -> list[Tensor]:
        """What every net but that of the last tap is given: features of every place, and the label."""
        states = [features_last(h) for h in ctx.states[:-1]]
        if not self.labels:
            return states
        label = one_hot(ctx)
        return [torch.cat([x, beside(label, x)], dim=-1) for x in states]


def beside(row: Tensor, x: Tensor) -> Tensor:
    """A row's vector (rows, k) at every place of x (rows, …, d)."""
    return row.view(len(row), *[1] * (x.ndim - 2), row.shape[-1]).expand(*x.shape[:-1], row.shape[-1])
