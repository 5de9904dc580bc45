"""Direct feedback alignment on graphs: pseudo-errors for unlabelled nodes, and the graph's own steps backwards.

Zhao et al., "DFA-GNN: forward learning of graph neural networks by direct feedback alignment" (NeurIPS 2024). The
activation's derivative, which the paper's equation leaves out, is applied, as in all rules here. Its graphs have more
labelled nodes than others; where it is the other way round, `balance` keeps the guessed errors from drowning the true.
"""

from torch import Tensor

from creditscope.rules import CreditContext, register_rule
from creditscope.rules._spread import check_spreading, graph_of, propagated, pseudo_errors
from creditscope.rules.dfa import DFA


@register_rule("dfa_gnn")
class DFAGNN(DFA):
    """a_l = (Âᵀ)^k Ê B_l, k the convolutions above tap l; without `pseudo` Ê = E."""

    label = "DFA-GNN"
    formula = "a_l = (Âᵀ)^k Ê B_lᵀ,  k = L−1−l,  B_l ~ N(0, 1/C)"
    needs_graph = True

    def __init__(self, *, alpha: float = 0.1, steps: int = 50, pseudo: bool = True, balance: bool = True):
        super().__init__()
        check_spreading(alpha, steps)
        self.alpha, self.steps, self.pseudo, self.balance = alpha, steps, pseudo, balance

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        """From the top down: each tap is one convolution further from the error."""
        matrix, error = graph_of(ctx.inputs), ctx.error
        if self.pseudo:
            error = pseudo_errors(matrix, error, ctx.output, ctx.mask, self.alpha, self.steps, self.balance)
        errors = propagated(matrix.flipped, error, len(ctx.states))
        return [e @ B.T for e, B in zip(errors, reversed(ctx.feedback), strict=True)][::-1]
