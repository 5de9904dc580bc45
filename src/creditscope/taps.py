"""Taps: named places in any `nn.Module` where hidden states are read (*watch*) or credit is given (*cut*).

*Watch* keeps the states in the graph, so one `torch.autograd.grad` gives every gradient at once.
*Cut* hands the next stage a detached copy, so one backward from many roots sends each stage its own
credit and nothing piles up through skip connections.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.quiet import by_itself
from creditscope.returned import all_modules
from creditscope.stack import Net, StackedNet, call_net, pattern_of
from creditscope.stacked_functions import OneForAll


def resolve_taps(model: nn.Module, patterns: str | Sequence[str]) -> tuple[str, ...]:
    """Module names that match the globs, in the order of `model.named_modules()`; `*` stays within one level.

    >>> resolve_taps(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "*")
    ('0', '1')
    """
    names = [name for name, _ in model.named_modules() if name]
    wanted = [patterns] if isinstance(patterns, str) else [*patterns] or [""]
    for pattern in wanted:
        if not any(_matches(name, pattern) for name in names):
            raise UnknownNameError("tap", pattern, names)
    return tuple(name for name in names if any(_matches(name, pattern) for pattern in wanted))


def _matches(name: str, pattern: str) -> bool:
    parts, globs = name.split("."), pattern.split(".")
    return len(parts) == len(globs) and all(map(fnmatchcase, parts, globs))


def split_state(output: Any) -> tuple[Any, Callable[[Tensor], Any]]:
    """The state among what a module gives, and how another is put in its place.

    It is the tensor, or the first one of a tuple or list (blocks that also return attention weights, a cache): the rest
    is passed on as it is.

    >>> h, put_in_place = split_state((torch.zeros(2), "rest"))
    >>> put_in_place(h + 1)
    (tensor([1., 1.]), 'rest')
    """
    if isinstance(output, tuple | list):
        at = next((i for i, part in enumerate(output) if isinstance(part, Tensor)), None)
        if at is not None:
            make = getattr(output, "_make", type(output))  # named tuples are made otherwise
            return output[at], lambda h: make([*output[:at], h, *output[at + 1 :]])
    return output, lambda h: h


def may_put_time_first(module: nn.Module, state: Any) -> bool:
    """Whether a sequence module of torch says that it gives (time, rows, …), and sizes do not tell otherwise."""
    inner = getattr(module, "self_attn", module)
    if not isinstance(inner, nn.RNNBase | nn.MultiheadAttention) or inner.batch_first:
        return False
    return isinstance(state, Tensor) and state.ndim == 3 and state.shape[0] == state.shape[1]


@dataclass
class Forward:
    """One forward pass: the output and, per tap, the state that stays in the graph and the one passed on."""

    inputs: Any
    output: Tensor
    states: list[Tensor]
    passed: list[Tensor]
    order: tuple[str, ...]
    """Tap names in the order in which they fired."""
    gate: "Gate"
    """Whether a backward crosses taps; only in a watched forward."""
    tensors: dict[str, Tensor] | None = None
    """What replaced the net's own parameters or buffers."""
    states_only: bool = False
    """Whether every tap's module gives its state and nothing else."""
    versions: tuple[int, ...] = ()
    """Of the states when they were read."""

    @property
    def overwritten(self) -> bool:
        """Whether a module has worked in place on a state that was read."""
        return any(h._version != read for h, read in zip(self.states, self.versions, strict=True))


class Gate:
    """The switch at every tap of a watched forward: open for exact gradients, shut for credit stage by stage."""

    def __init__(self) -> None:
        self.open = True

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Inside, a backward stops at every tap, so that each stage learns from its own credit alone."""
        self.open = False
        try:
            yield
        finally:
            self.open = True


class PassOn(torch.autograd.Function):
    """A copy of a state for the next stage, which may change it in place; its backward obeys the gate."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, gate: Gate) -> Tensor:
        ctx.gate = gate
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, None]:
        return (grad_outputs[0] if ctx.gate.open else None), None


def watch_forward(
    model: Net,
    taps: Sequence[str],
    inputs: Any,
    tensors: dict | None = None,
    *,
    instead: Sequence[Tensor] | None = None,
    copies: bool = True,
) -> Forward:
    """A forward whose states all require grad and stay connected; `tensors` replace parameters or buffers.

    The next module gets a copy, so that one that works in place cannot change what was read; or what it is to have
    `instead`, per tap, and no gradient then crosses. Without `copies` it gets the state itself, and there is no gate.
    """
    gate = Gate()
    others = dict(zip(taps, instead or (), strict=False))

    def keep(h: Tensor, name: str) -> tuple[Tensor, Tensor]:
        h = h if h.requires_grad else h.detach().requires_grad_()
        if not copies:
            return h, h
        return h, others[name].clone() if others else PassOn.apply(h, gate)  # pyright: ignore[reportReturnType]

    return _forward(model, taps, inputs, keep, tensors, gate)


def cut_forward(
    model: Net,
    taps: Sequence[str],
    inputs: Any,
    *,
    top_gradient: bool = False,
    instead: Sequence[Tensor] | None = None,
) -> Forward:
    """A forward in stages: no gradient crosses a tap; the last copy asks for one if `top_gradient`.

    With `instead`, one tensor per tap, the next stages get these in place of copies.
    """
    last, others = taps[-1], dict(zip(taps, instead or (), strict=False))

    def cut(h: Tensor, name: str) -> tuple[Tensor, Tensor]:
        handed = others[name] if others else h
        return h, handed.detach().clone().requires_grad_(top_gradient and name == last)

    return _forward(model, taps, inputs, cut)


def _forward(
    model: Net,
    taps: Sequence[str],
    inputs: Any,
    hand_over: Callable[[Tensor, str], tuple[Tensor, Tensor]],
    tensors: dict | None = None,
    gate: Gate | None = None,
) -> Forward:
    kept: dict[str, Tensor] = {}
    passed: dict[str, Tensor] = {}
    versions: dict[str, int] = {}
    states_only = True

    def tap(name: str, h: Tensor) -> Tensor:
        kept[name], passed[name] = hand_over(h, name)
        versions[name] = kept[name]._version
        return passed[name]

    def hook(name: str, module: nn.Module, args: Any, output: Any) -> Any:
        nonlocal states_only
        state, put_in_place = split_state(output)
        states_only = states_only and state is output
        if name in kept:
            raise CreditscopeError(
                f"Expected tap {name!r} to run once in a forward, but it ran twice. "
                f"Tap a module around it instead; names there are: {_names(model)}."
            )
        if not isinstance(state, Tensor) or not state.is_floating_point():
            raise CreditscopeError(
                f"Expected tap {name!r} to give one floating-point tensor, but got {_describe(state)}. "
                f"Tap a module that does; names there are: {_names(model)}."
            )
        if isinstance(model, StackedNet):
            return put_in_place(OneForAll.apply(partial(tap, name), state))  # pyright: ignore[reportArgumentType]
        return put_in_place(tap(name, state))

    pattern = pattern_of(model)
    handles = [pattern.get_submodule(name).register_forward_hook(partial(hook, name)) for name in taps]
    try:
        output = call_net(model, inputs, tensors)
    finally:
        for handle in handles:
            handle.remove()
    if silent := [name for name in taps if name not in kept]:
        raise CreditscopeError(
            f"Expected every tap to run in a forward, but {', '.join(silent)} did not. "
            f"Names there are: {_names(model)}."
        )
    if not isinstance(output, Tensor):
        raise CreditscopeError(f"Expected the model to return one tensor, but got {_describe(output)}.")
    return Forward(
        inputs=inputs,
        output=output,
        states=[kept[name] for name in taps],
        passed=[passed[name] for name in taps],
        order=tuple(kept),
        gate=gate or Gate(),
        tensors=tensors,
        states_only=states_only,
        versions=tuple(versions[name] for name in taps),
    )


def check_rows(forward: Forward, taps: Sequence[str]) -> None:
    """Refuse a tap whose state has not the rows of the output: of another axis first, or of some rows alone."""
    rows = forward.output.shape[0]
    for name, h in zip(taps, forward.states, strict=True):
        if h.ndim == 0 or h.shape[0] != rows:
            raise CreditscopeError(
                f"Expected the state of tap {name!r} to have the {rows} rows of the output first, but got shape "
                f"{tuple(h.shape)}. Is the model batch first, and does the module see every row? Else tap another."
            )


def gradients_at(
    places: Sequence[Tensor], output: Tensor, error: Tensor, *, retain_graph: bool = False
) -> list[Tensor]:
    """The gradient at places in the graph of an output whose own is `error`; zero where it does not depend on them."""
    found = torch.autograd.grad(output, places, error, retain_graph=retain_graph, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(places, found, strict=True)]


def _names(model: Net) -> str:
    return ", ".join(name for name, _ in pattern_of(model).named_modules() if name)


def _describe(value: Any) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


@contextmanager
def leave_untouched(model: Net) -> Iterator[dict[str, Tensor]]:
    """Measure inside: gradients on, autocast off, hooks of the user silent, random streams put back.

    Yields buffer copies to use.
    """
    if torch.is_inference_mode_enabled():
        raise CreditscopeError(
            "Expected a caller outside torch.inference_mode(), because tensors made there can never "
            "carry gradients, but it is on. Use torch.no_grad() instead; measuring works inside that."
        )
    tensors = [*model.parameters(), *model.buffers()]
    devices = sorted({t.device.index for t in tensors if t.device.type == "cuda"})
    with ExitStack() as stack:
        stack.enter_context(by_itself(all_modules(pattern_of(model))))
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.enable_grad())
        for kind in {t.device.type for t in tensors} | {"cpu"}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if devices and any(isinstance(m, nn.RNNBase) and not m.training for m in pattern_of(model).modules()):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))  # its backward is for training alone
        yield {name: b.detach().clone() for name, b in model.named_buffers()}
