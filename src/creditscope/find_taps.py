"""Find the taps of a model: its repeated blocks by their kind, then by one forward those that give a state of the rows.

A *block* is an outermost module of a kind that occurs again and has modules inside (a transformer's layers, a ResNet's
blocks through all its stages, what goes down and up in a U-Net, graph convolutions). A model without any is taken layer
by layer, else part by part.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.returned import Read, read_logits
from creditscope.stack import call_module
from creditscope.taps import leave_untouched, may_put_time_first, split_state
from creditscope.text import count, first_few
from creditscope.unwrap import unwrap

CHAINS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
ENDS_LAYER = ("dropout", "pooling", "flatten", "upsampling", "padding")
"""Files of torch.nn.modules whose modules are no part of the layer before them."""
WORTH = 0.5
"""Share of the weights, embeddings aside, that blocks have if they are the model's stream."""


@dataclass(frozen=True)
class TapChoice:
    """Modules that could be tapped, in order, and what they are.

    >>> import creditscope as cs
    >>> print(cs.TapChoice(("h.0", "h.1", "h.2", "h.3"), "4 × Block"))
    4 × Block: h.0, h.1, …, h.3
    """

    taps: tuple[str, ...]
    what: str
    note: str = ""
    """What is to be said of modules that were left out."""

    def __str__(self) -> str:
        shown = self.taps if len(self.taps) < 4 else (*self.taps[:2], "…", self.taps[-1])
        return f"{self.what}: {', '.join(shown)}"


def suggest_taps(model: nn.Module, inputs: Any = None) -> list[TapChoice]:
    """Choices of taps for a model, best first: repeated blocks, layers with weights, parts.

    With `inputs`, a few rows that the model can be called with, only modules that give a state of the rows, once, are
    listed, and not those that give the output; `watch` without taps takes the first choice of that kind.

    >>> import torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]
    >>> for choice in cs.suggest_taps(nn.Sequential(nn.Linear(4, 8), *blocks, nn.Linear(8, 3)), torch.randn(5, 4)):
    ...     print(choice)
    3 × Sequential: 1, 2, 3
    4 × Linear: 0, 1.1, …, 3.1
    4 × Linear: 0, 1.0, …, 3.0
    1 × Linear, 3 × Sequential: 0, 1, …, 3
    """
    model, _ = unwrap(model)
    if inputs is None:
        return [_named(model, names) for names in _candidates(model)]
    return _checked_choices(model, _told_by(Read(model, read_logits), inputs))


def find_taps(model: nn.Module, net: nn.Module, inputs: Any) -> TapChoice:
    """The first choice that a forward of `net`, the model read for its logits, confirms; of several taps, if it can."""
    told = _told_by(net, inputs)
    choices = _checked_choices(model, told)
    if not choices:
        raise CreditscopeError(
            "Expected a model with repeated blocks, or layers that give a state of the rows once in a forward, but "
            f"found none.{told.rows_elsewhere} Name modules, taps=…; there are: {_listed(model)}."
        )
    found = next((choice for choice in choices if len(choice.taps) > 1), choices[0])
    return replace(found, note=f"Some modules are no taps.{told.rows_elsewhere}" if told.not_first else "")


def no_taps(model: nn.Module) -> CreditscopeError:
    """What to say of a model in which nothing can be tapped."""
    names = _listed(model)
    there = f"there are: {names}" if names else "it has no modules inside"
    return CreditscopeError(
        f"Expected a model with repeated blocks or layers, but found none in a {type(model).__name__}. Name modules, "
        f"taps=…; {there}."
    )


def _checked_choices(model: nn.Module, told: "_Told") -> list[TapChoice]:
    found: dict[tuple[str, ...], TapChoice] = {}
    for names in _candidates(model):
        if taps := told.usable(_opened(model, names, told)):
            found.setdefault(taps, _named(model, taps))
    return list(found.values())


def _named(model: nn.Module, names: tuple[str, ...]) -> TapChoice:
    kinds = Counter(_layer_kind(model, name) for name in names)
    few = ", ".join(f"{times} × {kind}" for kind, times in kinds.items())
    return TapChoice(names, few if len(kinds) < 4 and len(kinds) < len(names) else count(len(names), "part"))


# -- by kind -----------------------------------------------------------------------------------------------------------


def _candidates(model: nn.Module) -> list[tuple[str, ...]]:
    """Names of blocks, of the ends of layers, of layers, of parts; none twice."""
    layers = tuple(name for name, _ in _weighted(model))
    ends = tuple(_end_of_layer(model, name) for name in layers)
    blocks, parts = _blocks(model), tuple(name for name, m in model.named_children() if _size(m))
    found = [blocks, ends, layers, parts]
    if _share(model, blocks) < WORTH:
        found = [ends, layers, blocks, parts]
    return [names for names in dict.fromkeys(found) if names]


def _blocks(model: nn.Module) -> tuple[str, ...]:
    """Outermost modules of kinds that occur again, and have modules and weights inside."""
    kinds = Counter(_kind(m) for _, m in model.named_modules() if _is_composite(m))
    kinds = {kind for kind, count in kinds.items() if count > 1}

    def outermost(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
        for name, child in module.named_children():
            if _is_composite(child) and _kind(child) in kinds and not _is_chain_of(child, kinds):
                yield prefix + name, child
            else:
                yield from outermost(child, f"{prefix}{name}.")

    found = list(outermost(model, ""))
    again = Counter(_kind(m) for _, m in found)
    return tuple(dict.fromkeys(name for name, m in found if again[_kind(m)] > 1))


def _kind(module: nn.Module) -> str:
    """Its class; of a plain sequence, that of all modules in it."""
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    return name + str([_kind(m) for m in module]) if type(module) is nn.Sequential else name


def _is_composite(module: nn.Module) -> bool:
    inside = [name for name, _ in module.named_children() if name != "parametrizations"]
    return bool(inside) and type(module) not in (nn.ModuleList, nn.ModuleDict) and _size(module) > 0


def _is_chain_of(module: nn.Module, kinds: set[str]) -> bool:
    """Whether it is a plain sequence in which a block is repeated: a stage."""
    inside = Counter(_kind(m) for m in module.children() if _is_composite(m))
    return type(module) is nn.Sequential and any(kind in kinds and count > 1 for kind, count in inside.items())


def _weighted(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules with a matrix of their own."""
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if isinstance(p, nn.UninitializedParameter) or p.ndim > 1]
        if name and (own or "parametrizations" in module._modules):
            yield name, module


def _end_of_layer(model: nn.Module, name: str) -> str:
    """In a plain sequence a layer goes on to its norm and its activation."""
    home, _, own = name.rpartition(".")
    parent = model.get_submodule(home)
    if type(parent) is not nn.Sequential:
        return name
    end = own
    children = list(parent.named_children())
    for key, child in children[[key for key, _ in children].index(own) + 1 :]:
        ends = type(child).__module__.rpartition(".")[2] in ENDS_LAYER
        if ends or any(True for _ in child.children()) or any(p.ndim > 1 for p in child.parameters()):
            break
        end = key
    return f"{home}.{end}" if home else end


def _layer_kind(model: nn.Module, name: str) -> str:
    """Its class; of an activation in a sequence, that of the layer before it."""
    home, _, own = name.rpartition(".")
    module, parent = model.get_submodule(name), model.get_submodule(home)
    before = list(parent.children())[: list(parent._modules).index(own)] if type(parent) is nn.Sequential else []
    layer = next((m for m in reversed(before) if any(p.ndim > 1 for p in m.parameters())), module)
    return type(module if any(p.ndim > 1 for p in module.parameters()) else layer).__name__


def _size(module: nn.Module, *, embeddings: bool = True) -> int:
    if not embeddings:
        held = {id(p) for m in module.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
        return sum(p.numel() for p in module.parameters() if id(p) not in held)
    return sum(1 if isinstance(p, nn.UninitializedParameter) else p.numel() for p in module.parameters())


def _share(model: nn.Module, names: tuple[str, ...]) -> float:
    lazy = any(isinstance(p, nn.UninitializedParameter) for p in model.parameters())
    if lazy or not names:
        return float(bool(names))
    held = sum(_size(model.get_submodule(name), embeddings=False) for name in names)
    return held / max(1, _size(model, embeddings=False))


# -- by one forward ----------------------------------------------------------------------------------------------------


@dataclass
class _Told:
    """What one forward tells of every module: when it began and ended, how often, and its state."""

    output: Tensor
    began: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    states: dict[str, Any] = field(default_factory=dict)
    weighted: frozenset[str] = frozenset()
    not_first: frozenset[str] = frozenset()
    """Modules that put time before rows."""

    def usable(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those that give a state of the rows, once, in the order in which they do; without what gives the output."""
        found = sorted({n for n in names if self._is_state(n)}, key=self.ended.__getitem__)
        while found and self._is_output(found[-1]):
            found.pop()
        return tuple(found)

    def _is_state(self, name: str) -> bool:
        once = self.times[name] == 1 and name not in self.not_first
        return once and self._rows_of(name) == len(self.output)

    def _rows_of(self, name: str) -> int | None:
        """The first size of a state that has features; None if it is none."""
        h = self.states.get(name)
        return len(h) if isinstance(h, Tensor) and h.is_floating_point() and h.ndim > 1 else None

    def is_stage(self, name: str, blocks: tuple[str, ...]) -> bool:
        last = max((n for n in blocks if n in self.ended), key=self.ended.__getitem__, default=None)
        return last is not None and (not self._is_state(name) or self.states[last] is self.states[name])

    def _is_output(self, name: str) -> bool:
        """Whether nothing with weights comes after it, and its shape is the output's."""
        after = any(self.began[other] > self.ended[name] for other in self.weighted if other in self.began)
        return not after and self.states[name].shape == self.output.shape

    @property
    def rows_elsewhere(self) -> str:
        """What to say of modules whose rows are not first."""
        rows = {name: self._rows_of(name) for name in self.states}
        found = [n for n, count in rows.items() if n in self.not_first or count not in (None, len(self.output))]
        if not found:
            return ""
        return (
            f" The output has {len(self.output)} rows first, and the states of {first_few(found, 4)} have not: "
            "a module with batch_first=False puts time first, so give it batch_first=True."
        )


def _told_by(net: nn.Module, inputs: Any) -> _Told:
    modules = {name: module for name, module in net.named_modules() if name}
    told = _Told(torch.empty(0), weighted=frozenset(name for name, _ in _weighted(net)))
    clock = iter(range(10**9))
    elsewhere: set[str] = set()

    def begin(name: str, *_: Any) -> None:
        told.began[name] = next(clock)

    def end(name: str, module: nn.Module, _: Any, output: Any) -> None:
        told.times[name] += 1
        told.ended[name] = next(clock)
        told.states[name], _ = split_state(output)
        if may_put_time_first(module, told.states[name]):
            elsewhere.add(name)

    with leave_untouched(net) as buffers, torch.no_grad():
        handles = [m.register_forward_pre_hook(partial(begin, name)) for name, m in modules.items()]
        handles += [m.register_forward_hook(partial(end, name)) for name, m in modules.items()]
        try:
            told.output = call_module(net, inputs, buffers)
        finally:
            for handle in handles:
                handle.remove()
    told.not_first = frozenset(elsewhere)
    return told


def _opened(model: nn.Module, names: tuple[str, ...], told: _Told) -> tuple[str, ...]:
    """Stages are opened: kinds that give what the last of several repeated blocks inside gave, or no state at all."""
    inside = {name: tuple(f"{name}.{own}" for own in _blocks(model.get_submodule(name))) for name in names}
    kinds = {name: _kind(model.get_submodule(name)) for name in names}
    stages = {kinds[name] for name, blocks in inside.items() if blocks and told.is_stage(name, blocks)}
    found: list[str] = []
    for name, blocks in inside.items():
        found += _opened(model, blocks, told) if blocks and kinds[name] in stages else [name]
    return tuple(found)


def _listed(model: nn.Module) -> str:
    return first_few([name for name, _ in model.named_modules() if name], 20)
