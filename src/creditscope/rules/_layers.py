"""Layers with feedback: forward as before; backward, credit goes down through B instead of W, and all else is exact.

Whether B or W is used is read when the backward runs, so one forward serves the rule's credit and the exact reference;
and so is B itself, which the rule makes of the weight and of its memory (`WeightRule.transport`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized

from creditscope.anatomy import Anatomy
from creditscope.errors import CreditscopeError
from creditscope.rng import gaussians_of_many
from creditscope.rules._pass import advanced, draw_counter
from creditscope.rules._rule import Layer, WeightRule
from creditscope.stack import Net, StackedNet, pattern_of, transforms_active
from creditscope.stacked_functions import OneForAll, linear_backward, stacked_linear

ELEMENTWISE = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU, nn.Embedding, nn.modules.batchnorm._NormBase)
"""Modules with parameters whose backward transports no credit through a weight matrix."""
NOT_SHARED = ("_buffers", "_non_persistent_buffers_set", "_compiled_call_impl")
"""What a layer with feedback does not take from the plain one: it has buffers, and a forward, of its own."""
BY_TAP_RULE = "Any model can be trained by a tap rule (dfa, local): creditscope.attach(model, rule='dfa', taps=…)."
"""What to do with a model that cannot be converted."""
F = TypeVar("F", bound=type["WithFeedback"])


class Transport:
    """The switch all converted layers of a net share: through the feedback of `rule`, or exact."""

    def __init__(self, rule: WeightRule) -> None:
        self.rule = rule
        self.exact = False
        self.by_rule = type(rule).transport is not WeightRule.transport

    @contextmanager
    def exactly(self) -> Iterator[None]:
        """Inside, backward passes use the true weights."""
        before, self.exact = self.exact, True
        try:
            yield
        finally:
            self.exact = before

    def matrix(self, weight: Tensor, memory: Tensor, *, stacked: bool = False) -> Tensor:
        """What carries credit down now; `stacked`: with seeds in front."""
        if self.exact:
            return weight
        if not self.by_rule:
            return memory
        return torch.vmap(self.rule.transport)(weight, memory) if stacked else self.rule.transport(weight, memory)


class LinearWithFeedback(torch.autograd.Function):
    """y = x Wᵀ + b with its own backward; any leading dimensions. With weights of many seeds, (seeds, out, in), the
    first dimension of x is theirs.
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """As of any function; outside `vmap` and its kin without binding the arguments, which is felt in a step."""
        if transforms_active():
            return super().apply(*args)
        return super(torch.autograd.Function, cls).apply(*args)  # pyright: ignore[reportAttributeAccessIssue]

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, feedback: Tensor, transport: Transport) -> Tensor:
        return functional.linear(x, weight, bias) if weight.ndim == 2 else stacked_linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, weight, _, feedback, ctx.transport = inputs
        ctx.save_for_backward(x, weight, feedback)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        x, weight, feedback = ctx.saved_tensors
        delta, rows = _as_rows(grad_outputs[0], weight), _as_rows(x, weight)
        matrix = ctx.transport.matrix(weight, feedback, stacked=weight.ndim > 2) if ctx.needs_input_grad[0] else weight
        down, of_weight, of_bias = linear_backward(delta, rows, matrix, ctx.needs_input_grad[:3])
        if down is not None and down.shape != x.shape:
            down = down.view(x.shape)
        return down, of_weight, of_bias, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple[Tensor, int]:
        """The products of all seeds as one batched product; what they share is not copied, and if that is the whole
        layer, all their rows are rows of one product."""
        if all(dim is None for dim in in_dims[1:]):
            behind = args[1].ndim - 2  # the seeds of a weight that has its own stay in front
            return LinearWithFeedback.apply(args[0].movedim(in_dims[0], behind), *args[1:]), behind
        return OneForAll.vmap(info, (None, *in_dims), LinearWithFeedback.apply, *args)


def _as_rows(x: Tensor, weight: Tensor) -> Tensor:
    """(rows, features), or (seeds, rows, features), in the weight's number format: under autocast x is narrower.

    What is so already is handed back untouched, because calls that do nothing are felt in a step, too.
    """
    if x.dtype != weight.dtype:
        x = x.to(weight.dtype)
    return x if x.ndim == weight.ndim else x.reshape(*weight.shape[:-2], -1, x.shape[-1])


class Conv2dWithFeedback(torch.autograd.Function):
    """A convolution of (rows, channels, y, x) that sends credit down through the feedback kernel; ∂ of kernel and bias
    are exact.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor | None, feedback: Tensor, transport: Transport, how: tuple
    ) -> Tensor:
        return functional.conv2d(x, weight, bias, *how)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, weight, bias, feedback, ctx.transport, ctx.how = inputs
        ctx.biases = None if bias is None else list(bias.shape)
        ctx.save_for_backward(x, weight, feedback)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        x, weight, feedback = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.how
        delta, x = (t.to(weight.dtype) for t in (grad_outputs[0], x))  # under autocast they are narrower

        def send(matrix: Tensor, wanted: list[bool]) -> tuple:
            settings = (ctx.biases, stride, padding, dilation, False, [0, 0], groups, wanted)
            return torch.ops.aten.convolution_backward(delta, x, matrix, *settings)

        down, own = ctx.needs_input_grad[0], list(ctx.needs_input_grad[1:3])
        if down and ctx.transport.exact:
            return (*send(weight, [True, *own]), None, None, None)
        sent = send(ctx.transport.matrix(weight, feedback), [True, False, False])[0] if down else None
        of_weight, of_bias = send(weight, [False, *own])[1:] if any(own) else (None, None)
        return sent, of_weight, of_bias, None, None, None


class WithFeedback(nn.Module):
    """A layer that shares the parameters of a plain one and owns the buffer `feedback`; its state dict carries all.

    A form for another class of layers derives from this and that class, and is made known by `register_feedback`. Its
    `forward` ends in an autograd function called `…WithFeedback`, by which credit that passed feedback is known.
    """

    feedback: Tensor
    counter: Tensor
    weight: Any
    bias: Any

    def __init__(self, layer: nn.Module, feedback: Tensor, transport: Transport, counter: Tensor | None = None):
        nn.Module.__init__(self)
        # parameters, hooks and submodules are the layer's own dictionaries; sizes and strides its own forward looks at
        self.__dict__.update({name: value for name, value in vars(layer).items() if name not in NOT_SHARED})
        self._buffers.update(layer._buffers)
        self._non_persistent_buffers_set.update(layer._non_persistent_buffers_set)
        self.transport, self._plain = transport, (layer,)  # in a tuple: no submodule of this one
        memory = self.out_first(feedback.detach()).to(self.weight)
        self.register_buffer("feedback", memory.clone(memory_format=torch.contiguous_format))  # never the weight itself
        if counter is not None:
            self.register_buffer("counter", counter.to(self.weight.device))

    def plain(self) -> nn.Module:
        """The layer it was made of, with its tensors and mode as they are now."""
        (layer,) = self._plain
        layer.training = self.training
        layer._buffers.update({name: self._buffers[name] for name in layer._buffers})
        return layer

    @staticmethod
    def out_first(weight: Tensor) -> Tensor:
        """The weight, or what is of its shape, as (out, in, …), which rules are told; and back again."""
        return weight

    @staticmethod
    def fans(layer: Any) -> tuple[int, int]:
        """Numbers that one output is made of, and that one input goes into."""
        return layer.weight.shape[1], layer.weight.shape[0]


FORMS: dict[type[nn.Module], type[WithFeedback]] = {}
"""From a class of layers to its form with feedback."""


def register_feedback(layer: type[nn.Module]) -> Callable[[F], F]:
    """Class decorator: this is how layers of exactly that class carry feedback.

    >>> from torch import nn
    >>> from creditscope.rules import FeedbackLinear, register_feedback
    >>> class Scaled(nn.Linear):
    ...     def forward(self, x):
    ...         return 2 * super().forward(x)
    >>> @register_feedback(Scaled)
    ... class FeedbackScaled(FeedbackLinear):
    ...     def forward(self, x):
    ...         return 2 * super().forward(x)
    """

    def keep(cls: F) -> F:
        FORMS[layer] = cls
        return cls

    return keep


@register_feedback(nn.Linear)
class FeedbackLinear(WithFeedback, nn.Linear):  # pyright: ignore[reportIncompatibleVariableOverride]
    """`nn.Linear` with feedback."""

    def forward(self, input: Tensor) -> Tensor:
        return LinearWithFeedback.apply(input, self.weight, self.bias, self.feedback, self.transport)


@register_feedback(nn.Conv2d)
class FeedbackConv2d(WithFeedback, nn.Conv2d):  # pyright: ignore[reportIncompatibleVariableOverride]
    """`nn.Conv2d` with feedback: any stride, padding, dilation and groups."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim == 3:  # one image alone
            return self.forward(input.unsqueeze(0)).squeeze(0)
        padding = self.padding
        if self.padding_mode != "zeros" or isinstance(padding, str):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            input, padding = functional.pad(input, self._reversed_padding_repeated_twice, mode), (0, 0)
        how = (self.stride, padding, self.dilation, self.groups)
        return Conv2dWithFeedback.apply(input, self.weight, self.bias, self.feedback, self.transport, how)

    @staticmethod
    def fans(layer: Any) -> tuple[int, int]:
        """Over all places of the kernel."""
        places = layer.weight[0, 0].numel()
        return layer.weight.shape[1] * places, layer.weight.shape[0] * places // layer.groups


class FeedbackConv1D(WithFeedback):
    """The `Conv1D` of transformers with feedback: y = x W + b, W (in, out)."""

    def forward(self, input: Tensor) -> Tensor:
        weight, feedback = self.out_first(self.weight), self.out_first(self.feedback)
        return LinearWithFeedback.apply(input, weight, self.bias, feedback, self.transport)

    @staticmethod
    def out_first(weight: Tensor) -> Tensor:
        return weight.transpose(-2, -1)

    @staticmethod
    def fans(layer: Any) -> tuple[int, int]:
        return layer.weight.shape[0], layer.weight.shape[1]


def form_of(layer: nn.Module) -> type[WithFeedback] | None:
    """How layers of this very class carry feedback; None if they cannot."""
    kind = type(layer)
    if (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return FeedbackConv1D
    return FORMS.get(kind)


def layers_with_feedback(net: Net) -> dict[str, WithFeedback]:
    """By name, each once."""
    return {name: m for name, m in pattern_of(net).named_modules() if isinstance(m, WithFeedback)}


def weight_names(net: Net) -> dict[str, str]:
    """For every layer with feedback the name of its weight; layers whose weights are tied have the first name."""
    name_of = {id(p): name for name, p in pattern_of(net).named_parameters()}
    return {name: name_of[id(layer.weight)] for name, layer in layers_with_feedback(net).items()}


@torch.no_grad()
def weights_and_feedback(net: Net) -> dict[str, tuple[Tensor, Tensor]]:
    """W, and B as a backward would use it now, of every layer with feedback, by the weight's name; as (out, in, …).

    In a stack both have the seed axis in front.
    """
    named, stacked = {**dict(net.named_parameters()), **dict(net.named_buffers())}, isinstance(net, StackedNet)
    found, weights = {}, weight_names(net)
    for name, layer in layers_with_feedback(net).items():
        out_first = torch.vmap(layer.out_first) if stacked else layer.out_first
        W, memory = (out_first(named[own].detach()) for own in (weights[name], f"{name}.feedback"))
        found[weights[name]] = W, layer.transport.matrix(W, memory, stacked=stacked)
    return found


def transport_of(net: Net) -> Transport | None:
    """The switch of a converted net; None if the net has no converted layer."""
    return next((m.transport for m in layers_with_feedback(net).values()), None)


def convert_layers(net: nn.Module, rule: WeightRule, anatomy: Anatomy, generator: torch.Generator) -> None:
    """Give every layer that can carry it the feedback that the rule draws, in place."""
    _refuse_unknown(net)
    transport, name_of = Transport(rule), {id(p): name for name, p in net.named_parameters()}

    def convert(name: str, layer: Any) -> nn.Module:
        form = form_of(layer)
        assert form is not None
        weight, in_head = form.out_first(layer.weight.detach()), name_of[id(layer.weight)] in anatomy.stages[-1]
        about = Layer(name, weight, *form.fans(layer), in_head)
        memory = rule.draw_memory(about, generator)
        if memory is None:
            return layer
        if memory.shape != weight.shape:
            wanted, got = tuple(weight.shape), tuple(memory.shape)
            raise CreditscopeError(f"Expected feedback of shape {wanted} for {name!r}, but got {got}.")
        return form(layer, memory, transport, draw_counter(generator) if rule.learns_feedback else None)

    _swap(net, lambda layer: form_of(layer) is not None, convert)


def restore(net: nn.Module) -> nn.Module:
    """Undo `convert`: every layer with feedback becomes the plain one again, with its weights as they are now.

    >>> import torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> names = list(model.state_dict())
    >>> _ = cs.convert(model, "fa", taps="1", inputs=torch.randn(20, 4))
    >>> list(cs.restore(model).state_dict()) == names
    True
    """
    _swap(net, lambda layer: isinstance(layer, WithFeedback), lambda _, layer: layer.plain())
    return net


def _swap(net: nn.Module, chosen: Callable[[nn.Module], bool], swap: Callable[[str, Any], nn.Module]) -> None:
    """Put another layer in the place of every one chosen; a layer of several names stays one layer."""
    swapped: dict[nn.Module, nn.Module] = {}
    for name, layer in list(net.named_modules(remove_duplicate=False)):
        if chosen(layer):
            parent, _, child = name.rpartition(".")
            if layer not in swapped:
                swapped[layer] = swap(name, layer)
            setattr(net.get_submodule(parent), child, swapped[layer])


def learn_memories(
    rule: WeightRule, layers: dict[str, WithFeedback], tensors: dict[str, tuple[Tensor, Tensor, Tensor]]
) -> dict[str, Tensor]:
    """The memory of every layer after one more step, by name, from its weight, memory and counter."""
    found, given = {}, dict[tuple, dict[str, Tensor]]()
    kinds = {name: (memory.shape, memory.dtype, memory.device) for name, (_, memory, _) in tensors.items()}
    for name, (weight, memory, counter) in tensors.items():
        out_first = layers[name].out_first

        def noise(shape: Sequence[int], place: int = 0, name: str = name) -> Tensor:
            """Layers alike ask for the same, and are given it in one go, which costs less."""
            kind = kinds[name]
            drawn = given.setdefault((kind, tuple(shape), place), {})
            if not drawn:
                alike = [other for other in tensors if kinds[other] == kind]
                counters = [tensors[other][2] for other in alike]
                numbers = gaussians_of_many(counters, [place] * len(alike), shape, kind[1])
                drawn.update(zip(alike, numbers, strict=True))
            return drawn[name]

        found[f"{name}.feedback"] = out_first(rule.learn(out_first(weight), out_first(memory), noise))
        found[f"{name}.counter"] = advanced(counter)
    return found


def _refuse_unknown(net: nn.Module) -> None:
    if form_of(net):
        raise CreditscopeError(
            f"Expected a net that contains its layers, but got a bare {type(net).__name__}. Put it into nn.Sequential."
        )
    added = getattr(net, "added_parameters", ())
    for name, module in net.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            raise CreditscopeError(
                f"Expected layers that can be converted, but {name!r} is an nn.MultiheadAttention, which bypasses its "
                "own sub-modules and would silently stay on backprop. Write the attention with its own q, k, v and o "
                f"nn.Linear layers. {BY_TAP_RULE}"
            )
        if isinstance(module, WithFeedback):
            raise CreditscopeError(
                f"Expected a net that is not converted yet, but {name!r} has feedback already. "
                "creditscope.restore(model) gives a plain one."
            )
        computed = form_of(module) and not isinstance(module._parameters.get("weight"), nn.Parameter)
        if computed or (is_parametrized(module, "weight") and module.weight.ndim > 1):  # pyright: ignore
            raise CreditscopeError(
                f"Expected a plain weight in {name!r}, but it is computed from others (weight_norm, spectral_norm), "
                "which would stop training. Remove the reparametrisation before converting."
            )
        if form_of(module) and "forward" in vars(module):
            raise CreditscopeError(
                f"Expected the forward of its class in {name!r}, but it was given another, which would silently "
                f"stay on backprop. Take it off, or make it a class with a form of its own. {BY_TAP_RULE}"
            )
        if form_of(module) or isinstance(module, ELEMENTWISE):
            continue
        from_torch = type(module).__module__.startswith("torch.nn")
        for own, parameter in module.named_parameters(name, recurse=False):
            if parameter.ndim < 2 or (own in added and not from_torch):
                continue
            known = ", ".join(kind.__name__ for kind in FORMS)
            advice = f"Use these layers. {BY_TAP_RULE}"
            if not from_torch:
                advice = (
                    "Use these, register a form of it (creditscope.rules.register_feedback), or, if it is only added "
                    f"to a state (positions, a class token), name it in the net's added_parameters = ({own!r},)."
                )
            raise CreditscopeError(
                f"Expected every weight matrix to sit in a layer that can carry feedback ({known}), but {own!r} of "
                f"shape {tuple(parameter.shape)} belongs to a {type(module).__name__}, through which credit would stay "
                f"exact. {advice}"
            )
