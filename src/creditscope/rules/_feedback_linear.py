"""A linear map that sends credit down through a feedback matrix B instead of its weights W.

Forward: y = x Wᵀ + b. Backward: ∂W and ∂b as usual, and δ_x = δ_y B, with B of W's shape. Whether B or W
is used is read when the backward runs, so one forward serves the rule's credit and the exact reference.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.rules._rule import Rule
from creditscope.stack import Net, pattern_of
from creditscope.stacked_functions import OneForAll, linear_backward, stacked_linear


class Transport:
    """The switch all converted layers of a net share: through the feedback of `rule`, or exact."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.exact = False

    @contextmanager
    def exactly(self) -> Iterator[None]:
        """Inside, backward passes use the true weights."""
        before, self.exact = self.exact, True
        try:
            yield
        finally:
            self.exact = before


class LinearWithFeedback(torch.autograd.Function):
    """y = x Wᵀ + b with its own backward; any leading dimensions. With weights of many seeds, (seeds, out, in), the
    first dimension of x is theirs.
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """As of any function; outside `vmap` and its kin without binding the arguments, which is felt in a step."""
        if torch._C._are_functorch_transforms_active():
            return super().apply(*args)
        return super(torch.autograd.Function, cls).apply(*args)  # pyright: ignore[reportAttributeAccessIssue]

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, feedback: Tensor, transport: Transport) -> Tensor:
        return nn.functional.linear(x, weight, bias) if weight.ndim == 2 else stacked_linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, weight, _, feedback, ctx.transport = inputs
        ctx.save_for_backward(x, weight, feedback)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        x, weight, feedback = ctx.saved_tensors
        delta, rows = _as_rows(grad_outputs[0], weight), _as_rows(x, weight)
        matrix = weight if ctx.transport.exact else feedback
        down, of_weight, of_bias = linear_backward(delta, rows, matrix, ctx.needs_input_grad[:3])
        if down is not None and down.shape != x.shape:
            down = down.view(x.shape)
        return down, of_weight, of_bias, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple[Tensor, int]:
        """The products of all seeds as one batched product; what they share is not copied."""
        return OneForAll.vmap(info, (None, *in_dims), LinearWithFeedback.apply, *args)


def _as_rows(x: Tensor, weight: Tensor) -> Tensor:
    """(rows, features), or (seeds, rows, features), in the weight's number format: under autocast x is narrower.

    What is so already is handed back untouched, because calls that do nothing are felt in a step, too.
    """
    if x.dtype != weight.dtype:
        x = x.to(weight.dtype)
    return x if x.ndim == weight.ndim else x.reshape(*weight.shape[:-2], -1, x.shape[-1])


class FeedbackLinear(nn.Linear):
    """`nn.Linear` with a `feedback` buffer of the weight's shape; its state dict carries both."""

    feedback: Tensor

    def __init__(self, linear: nn.Linear, feedback: Tensor, transport: Transport):
        nn.Module.__init__(self)  # shares the parameters of `linear` instead of drawing new ones
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.transport = transport
        self.register_buffer("feedback", feedback.to(linear.weight))
        self.train(linear.training)
        self._forward_hooks, self._forward_pre_hooks = linear._forward_hooks, linear._forward_pre_hooks

    def forward(self, input: Tensor) -> Tensor:
        """As `nn.Linear`; only the backward differs."""
        return LinearWithFeedback.apply(input, self.weight, self.bias, self.feedback, self.transport)


def transport_of(net: Net) -> Transport | None:
    """The switch of a converted net; None if the net has no converted layer."""
    return next((m.transport for m in pattern_of(net).modules() if isinstance(m, FeedbackLinear)), None)
