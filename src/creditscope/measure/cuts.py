"""Where a forward lets no gradient back although a sum goes on: detached skips and branches, and parts without grad.

`detach` is not wrong in itself: it stands in logs, in straight-through estimators and where a teacher is kept. It cuts
a skip where the detached state is added to, or joined with, something that was computed *from* that state; it cuts a
branch where weights that ran get no gradient. In x + (q − x).detach() the other term is not made from what was
detached, so nothing is said.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from creditscope.record.schema import CutFacts

DETACHED: tuple[Any, ...] = (torch.detach, Tensor.detach, Tensor.data.__get__)  # pyright: ignore[reportAttributeAccessIssue]
JOINS: tuple[Any, ...] = (
    torch.add,
    Tensor.add,
    Tensor.__add__,
    Tensor.__radd__,
    Tensor.add_,
    Tensor.__iadd__,
    torch.cat,
    torch.concat,
    torch.stack,
)
MOST_NODES, MOST_CUTS = 4096, 64
"""Graph nodes that are looked at to see what a term was made from, and detached states that are looked into."""


@dataclass
class Cuts:
    """Modules in whose forward a gradient is cut, by name, in order."""

    skips: list[str] = field(default_factory=list)
    """A state is detached, and joined with what was made from it."""
    detached: list[tuple[str, Any]] = field(default_factory=list)
    """A state that carries a gradient is detached at all: where, and the graph node it came from."""
    without_grad: list[str] = field(default_factory=list)
    """Trainable modules that ran with gradients off."""

    def facts(self, unreached: Collection[Tensor]) -> CutFacts | None:
        """Each module once; nothing if nothing was cut. A detached state matters if weights below it are unreached."""
        lost = {id(weight) for weight in unreached}
        cut = [name for name, node in self.detached[:MOST_CUTS] if lost & _leaves(node)] if lost else []
        found = {"skips": self.skips, "detached": cut, "without_grad": self.without_grad}
        return CutFacts(**{n: tuple(dict.fromkeys(p)) for n, p in found.items()}) if any(found.values()) else None


class CutFinder(TorchFunctionMode):
    """Watches one forward; `cuts` is filled as it goes."""

    def __init__(self, model: nn.Module, cuts: Cuts):
        super().__init__()
        self.cuts, self.running, self.finished = cuts, [""], ""
        self.sources: dict[int, tuple[Tensor, Any]] = {}
        self.model, self.hands = model, []

    def __enter__(self) -> "CutFinder":
        def begin(name: str):
            def hook(module: nn.Module, args: Any) -> None:
                self.running.append(name)
                own = next(module.parameters(recurse=False), None)
                if own is not None and own.requires_grad and not torch.is_grad_enabled():
                    self.cuts.without_grad.append(name)

            return hook

        def end(module: nn.Module, args: Any, output: Any) -> None:
            self.running.pop()

        for name, module in self.model.named_modules():
            if name:
                self.hands.append(module.register_forward_pre_hook(begin(name)))
                self.hands.append(module.register_forward_hook(end, always_call=True))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for hand in self.hands:
            hand.remove()
        self.sources.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in DETACHED:
            source = args[0] if args else next(iter(kwargs.values()))
            if source.requires_grad and source.grad_fn is not None:
                self.cuts.detached.append((self.running[-1], source.grad_fn))
                self.sources[id(result)] = (result, source.grad_fn)
        elif self.sources and func in JOINS:
            self._look_at_join((*args, *(kwargs or {}).values()))
        return result

    def _look_at_join(self, args: Any) -> None:
        terms = [t for t in (args[0] if isinstance(args[0], Sequence) else args) if isinstance(t, Tensor)]
        cut = [self.sources[id(t)][1] for t in terms if id(t) in self.sources]
        others = [t.grad_fn for t in terms if t.grad_fn is not None]
        if cut and others and all(_descends(other, cut[0]) for other in others):
            self.cuts.skips.append(self.running[-1])


def _descends(node: Any, source: Any) -> bool:
    """Whether a graph node was computed from another one; itself it was not."""
    return node is not source and any(below is source for below in _below(node))


def _leaves(node: Any) -> set[int]:
    """The weights, by identity, that a graph node was computed from."""
    return {id(below.variable) for below in _below(node) if hasattr(below, "variable")}


def _below(node: Any) -> Iterator[Any]:
    seen, todo = {node}, [node]
    while todo and len(seen) < MOST_NODES:
        found = todo.pop()
        yield found
        new = [child for child, _ in found.next_functions if child is not None and child not in seen]
        seen.update(new)
        todo.extend(new)
