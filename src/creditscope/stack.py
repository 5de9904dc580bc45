"""Many seeds of one net at once: parameters and buffers with a seed axis in front, the plain net under `vmap`.

A `StackedNet` can stand wherever a net is trained or measured; states, credit and gradients then have the seed axis in
front, and everything else reads the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from creditscope.stacked_functions import StackedFunctions


@dataclass(frozen=True)
class PerSeed:
    """Inputs with a seed axis in front; inputs that are not wrapped are shared by all seeds."""

    inputs: Any


@dataclass(frozen=True)
class Batch:
    """Inputs (a tensor, a tuple of arguments, a dictionary of keyword arguments) and one target per row."""

    inputs: Any
    """In a training batch for many seeds a `PerSeed`, with targets to match."""
    target: Tensor
    mask: Tensor | None = None
    """Which rows carry a loss (None: all)."""
    scored: Tensor | None = None
    """Index of the rows that accuracy is over (None: all)."""

    def only_scored(self, values: Tensor, dim: int = 0) -> Tensor:
        """Of values that have one entry per row along `dim`, those of the rows that accuracy is over."""
        return values if self.scored is None else values.index_select(dim, self.scored)


def as_arguments(inputs: Any) -> tuple:
    """All that a net is called with: inputs are one tensor, a tuple of arguments, or keyword arguments by name."""
    if isinstance(inputs, Mapping):
        return tuple(inputs.values())
    return inputs if isinstance(inputs, tuple) else (inputs,)


def call_module(net: nn.Module, inputs: Any, tensors: Mapping[str, Tensor] | None = None) -> Any:
    """One net called with its inputs; `tensors` replace parameters or buffers by name."""
    arguments, named = ((), dict(inputs)) if isinstance(inputs, Mapping) else (as_arguments(inputs), {})
    return functional_call(net, dict(tensors), arguments, named) if tensors else net(*arguments, **named)


def with_first(inputs: Any, first: Any) -> Any:
    """The same inputs with another first argument."""
    if isinstance(inputs, Mapping):
        return {**inputs, next(iter(inputs)): first}
    return (first, *inputs[1:]) if isinstance(inputs, tuple) else first


class StackedNet:
    """One net as the pattern, and the tensors of all seeds by the names they have in it."""

    def __init__(self, net: nn.Module, parameters: dict[str, nn.Parameter], buffers: dict[str, Tensor]):
        self.net, self._parameters, self._buffers = net, parameters, buffers
        self.seeds = len(next(iter(parameters.values())))

    @classmethod
    def of(cls, nets: Sequence[nn.Module]) -> "StackedNet":
        """Nets of one kind, stacked; the first becomes the pattern."""
        each = [dict(net.named_parameters()) for net in nets]
        parameters = {
            name: nn.Parameter(torch.stack([p[name].detach() for p in each]), requires_grad=pattern.requires_grad)
            for name, pattern in each[0].items()
        }
        held = [dict(net.named_buffers()) for net in nets]
        return cls(nets[0], parameters, {name: torch.stack([b[name] for b in held]) for name in held[0]})

    def __call__(self, inputs: Any, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
        """Outputs of all seeds (seeds, rows, …); `tensors` replace stacked parameters or buffers."""
        named = {**self._parameters, **self._buffers, **(tensors or {})}
        given, dim = _opened(inputs)

        def one_seed(own: dict[str, Tensor], inputs: Any) -> Tensor:
            return call_module(self.net, inputs, own)

        with StackedFunctions():
            return torch.vmap(one_seed, in_dims=(0, dim))(named, given).contiguous()

    def each(self, function: Callable, inputs: Any, *stacked: Any) -> Any:
        """`function` on the inputs and every seed's own share of what is stacked (None stays None)."""
        given, dim = _opened(inputs)
        in_dims = (dim, *(None if argument is None else 0 for argument in stacked))
        return torch.vmap(function, in_dims=in_dims)(given, *stacked)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return iter(self._parameters.items())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self._buffers.items())

    def parameters(self) -> Iterator[nn.Parameter]:
        return iter(self._parameters.values())

    def buffers(self) -> Iterator[Tensor]:
        return iter(self._buffers.values())

    def state_of(self, seed: int) -> dict[str, Tensor]:
        """The state dict of one seed's net, by its place in the stack; views, not copies."""
        stacked = {**self._parameters, **self._buffers}
        own = dict([*self.net.named_parameters(), *self.net.named_buffers()])
        first_name = {id(tensor): name for name, tensor in own.items()}  # a tied tensor has several
        state = self.net.state_dict(keep_vars=True)
        return {name: stacked[first_name[id(tensor)]][seed].detach() for name, tensor in state.items()}

    def share_buffers(self, names: Sequence[str], tensor: Tensor) -> None:
        """Let several buffers be one tensor, which is then written once for all of them."""
        self._buffers |= dict.fromkeys(names, tensor)

    def train(self, mode: bool = True) -> None:
        self.net.train(mode)

    def eval(self) -> None:
        self.net.eval()


def transforms_active() -> bool:
    """Whether this is called within `torch.func` or a map, over seeds say."""
    return torch._C._are_functorch_transforms_active()


Net = nn.Module | StackedNet


def pattern_of(net: Net) -> nn.Module:
    """The module whose submodules have names and hooks."""
    return net.net if isinstance(net, StackedNet) else net


def call_net(net: Net, inputs: Any, tensors: Mapping[str, Tensor] | None = None) -> Any:
    """The output of one net or of a stack; `tensors` replace parameters or buffers by name."""
    if isinstance(net, StackedNet):
        return net(inputs, tensors)
    return call_module(net, inputs, tensors)


def _opened(inputs: Any) -> tuple[Any, Any]:
    """The inputs, and the axis of their seeds: none of what is no tensor (a graph)."""
    if not isinstance(inputs, PerSeed):
        return inputs, None
    return inputs.inputs, tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, inputs.inputs)
