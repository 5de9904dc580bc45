"""Weight rules change how a linear map sends credit down; the rest of the backward pass stays exact.

Forward: y = x Wᵀ + b. Backward: ∂W and ∂b as usual, and δ_x = δ_y B, with the feedback B of W's shape. Whether B or W
is used is read when the backward runs, so one forward serves the rule's credit and the exact reference.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.anatomy import Anatomy
from creditscope.errors import CreditscopeError
from creditscope.losses import RowErrors
from creditscope.rules._rule import Rule, WeightRule
from creditscope.stack import Net, call_net, pattern_of
from creditscope.stacked_functions import OneForAll, linear_backward, stacked_linear
from creditscope.taps import Forward, watch_forward

ELEMENTWISE = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU, nn.Embedding, nn.modules.batchnorm._NormBase)
"""Modules with parameters whose backward transports no credit through a weight matrix."""

BY_TAP_RULE = (
    "To train it by a tap rule (dfa, block_fa), make its class a net by @creditscope.register_net, and call "
    "creditscope.run(net=…, rule='dfa')."
)
"""What to do with a model that cannot be converted."""


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


def convert_linears(net: nn.Module, rule: Rule, draw: Callable[[str, nn.Linear], Tensor | None]) -> None:
    """Give every `nn.Linear` the feedback that `draw(name, layer)` returns; None leaves the layer exact.

    >>> from torch import nn
    >>> from creditscope.rules import Rule, convert_linears
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> convert_linears(net, Rule(), lambda name, layer: -layer.weight.detach() if name == "0" else None)
    >>> [type(layer).__name__ for layer in net]
    ['FeedbackLinear', 'ReLU', 'Linear']
    """
    _refuse_unknown(net)
    transport, converted = Transport(rule), {}
    for name, layer in [(n, m) for n, m in net.named_modules(remove_duplicate=False) if type(m) is nn.Linear]:
        if layer not in converted:
            feedback, shape = draw(name, layer), layer.weight.shape
            if feedback is not None and feedback.shape != shape:
                got = tuple(feedback.shape)
                raise CreditscopeError(f"Expected feedback of shape {tuple(shape)} for {name!r}, but got {got}.")
            converted[layer] = layer if feedback is None else FeedbackLinear(layer, feedback, transport)
        parent, _, child = name.rpartition(".")
        setattr(net.get_submodule(parent), child, converted[layer])  # a layer of several names stays one layer


def _refuse_unknown(net: nn.Module) -> None:
    if isinstance(net, nn.Linear):
        raise CreditscopeError(
            "Expected a net that contains its Linear layers, but got a bare nn.Linear. Put it into an nn.Sequential."
        )
    added = getattr(net, "added_parameters", ())
    for name, module in net.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            raise CreditscopeError(
                f"Expected layers that can be converted, but {name!r} is an nn.MultiheadAttention, which bypasses its "
                "own sub-modules and would silently stay on backprop. Write the attention with its own q, k, v and o "
                f"nn.Linear layers. {BY_TAP_RULE}"
            )
        if isinstance(module, FeedbackLinear):
            raise CreditscopeError(
                f"Expected a net that is not converted yet, but {name!r} has feedback already. Convert a new one."
            )
        if type(module) is nn.Linear and not isinstance(module._parameters.get("weight"), nn.Parameter):
            raise CreditscopeError(
                f"Expected a plain weight in {name!r}, but it is computed from others (weight_norm, spectral_norm), "
                "which would stop training. Remove the reparametrisation before converting."
            )
        if type(module) is nn.Linear or isinstance(module, ELEMENTWISE):
            continue
        from_torch = type(module).__module__.startswith("torch.nn")
        for own, parameter in module.named_parameters(name, recurse=False):
            if parameter.ndim < 2 or (own in added and not from_torch):
                continue
            advice = f"Use nn.Linear layers. {BY_TAP_RULE}"
            if not from_torch:
                advice = (
                    "Use nn.Linear, or, if it is only added to a state (positions, a class token), name it in the "
                    f"net's attribute added_parameters = ({own!r},)."
                )
            raise CreditscopeError(
                f"Expected every weight matrix to sit in an nn.Linear, but {own!r} of shape {tuple(parameter.shape)} "
                f"belongs to a {type(module).__name__}, through which credit would stay exact. {advice}"
            )


@dataclass
class AppliedWeightRule:
    """A weight rule at work on a converted net."""

    rule: WeightRule
    net: Net
    anatomy: Anatomy
    penalty: float = 0.0

    def learn(self, inputs: Any) -> None:
        """Feedback of weight rules does not move by itself."""

    def backward(self, inputs: Any, errors_of: Callable[[Tensor], RowErrors]) -> RowErrors:
        """Fill `.grad` of the trained parameters by one backward pass."""
        if self.penalty:
            forward = watch_forward(self.net, self.anatomy.taps, inputs)
            errors = errors_of(forward.output)
            roots, gradients = self._roots(forward, errors)
            torch.autograd.backward(roots, [g / errors.count for g in gradients])
        else:
            output = call_net(self.net, inputs)
            errors = errors_of(output)
            output.backward(errors.error / errors.count)
        return errors

    def measure(
        self, forward: Forward, errors: RowErrors, exact: Sequence[Tensor], parameters: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Credit at every tap of a watched forward, and the weight gradients of training times the rows.

        Both are the exact ones for backprop, so nothing is computed; a penalty costs one more backward.
        """
        credits, weights = list(exact), {}
        wanted = list(parameters.values())
        if transport_of(self.net) is not None:
            credited = wanted if not self.penalty else []
            found = torch.autograd.grad(
                forward.output, [*forward.states, *credited], errors.error, retain_graph=True, allow_unused=True
            )
            credits = [torch.zeros_like(h) if a is None else a for h, a in zip(exact, found, strict=False)]
            weights = dict(zip(parameters, found[len(exact) :], strict=False))
        if self.penalty:
            roots, gradients = self._roots(forward, errors)
            found = torch.autograd.grad(roots, wanted, gradients, retain_graph=True, allow_unused=True)
            weights = dict(zip(parameters, found, strict=True))
        return credits, {name: g for name, g in weights.items() if g is not None}

    def _roots(self, forward: Forward, errors: RowErrors) -> tuple[list[Tensor], list[Tensor]]:
        pulls = [torch.zeros_like(h) for h in forward.states]
        for i, f in self.anatomy.block_changes(forward):
            pulls[i] += 2 * self.penalty * f
            pulls[i - 1] -= 2 * self.penalty * f
        return [forward.output, *forward.states], [errors.error, *pulls]
