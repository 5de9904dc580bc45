"""Swap the `nn.Linear` layers of a net for ones with feedback, and refuse what would silently stay backprop."""

from collections.abc import Callable

from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.rules._feedback_linear import FeedbackLinear, Transport
from creditscope.rules._rule import Rule

ELEMENTWISE = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.PReLU,
    nn.Embedding,
    nn.modules.batchnorm._NormBase,
)
"""Modules with parameters whose backward transports no credit through a weight matrix."""

BY_TAP_RULE = (
    "To train it by a tap rule (dfa, block_fa), make its class a net by @creditscope.register_net, and call "
    "creditscope.run(net=…, rule='dfa')."
)
"""What to do with a model that cannot be converted."""


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
            converted[layer] = _with_feedback(name, layer, draw(name, layer), transport)
        parent, _, child = name.rpartition(".")
        setattr(net.get_submodule(parent), child, converted[layer])  # a layer of several names stays one layer


def _with_feedback(name: str, layer: nn.Linear, feedback: Tensor | None, transport: Transport) -> nn.Linear:
    if feedback is None:
        return layer
    if feedback.shape != layer.weight.shape:
        raise CreditscopeError(
            f"Expected feedback of the weight's shape {tuple(layer.weight.shape)} for {name!r}, "
            f"but got {tuple(feedback.shape)}."
        )
    return FeedbackLinear(layer, feedback, transport)


def _refuse_unknown(net: nn.Module) -> None:
    if isinstance(net, nn.Linear):
        raise CreditscopeError(
            "Expected a net that contains its Linear layers, but got a bare nn.Linear. Put it into an nn.Sequential."
        )
    added = getattr(net, "added_parameters", ())
    for name, module in net.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            raise CreditscopeError(
                f"Expected layers that can be converted, but {name!r} is an nn.MultiheadAttention, which "
                "bypasses its own sub-modules and would silently stay on backprop. Write the attention "
                f"with its own q, k, v and o nn.Linear layers. {BY_TAP_RULE}"
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
        for own, parameter in module.named_parameters(name, recurse=False):
            if parameter.ndim < 2:
                continue
            where = f"{own!r} of shape {tuple(parameter.shape)} belongs to a {type(module).__name__}"
            if type(module).__module__.startswith("torch.nn"):
                raise CreditscopeError(
                    f"Expected every weight matrix to sit in an nn.Linear, but {where}, through which credit would "
                    f"stay exact. Use nn.Linear layers. {BY_TAP_RULE}"
                )
            if own not in added:
                raise CreditscopeError(
                    f"Expected every weight matrix to sit in an nn.Linear, but {where}; credit through it would "
                    "stay exact. Use nn.Linear, or, if it is only added to a state (positions, a class token), "
                    f"name it in the net's attribute added_parameters = ({own!r},)."
                )
