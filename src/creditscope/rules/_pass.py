"""One pass of the net with states replaced or shifted at taps: what rules beyond products with the error are made of.

It is a function of plain tensors, for `torch.func.grad`, `jvp`, `vjp` and `vmap`, of one seed or inside the map over
seeds. Loops over passes have a fixed length, and nothing asks the device for a number, so that a step can be captured.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad, jvp, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

from creditscope.rng import gaussians_of_many, hashed_gaussians, salt_of
from creditscope.rules._tree import leaves_of, unflatten
from creditscope.stack import Net, call_module, transforms_active
from creditscope.taps import split_state

AtTaps = Sequence[Tensor | None]


class Pass(NamedTuple):
    """What one pass of the net gives."""

    states: list[Tensor]
    """What every stage computed, before anything was put in its place."""
    output: Tensor


class Forward:
    """`forward(inputs=None, at=None, shift=None)`: a pass of one net at the weights of one moment.

    `inputs` are others than the step's own; tap l hands on `at[l]` instead of h_l, plus `shift[l]` (None: nothing is
    replaced, nothing is added). `tensors` replace the net's own by name, all of them. `states` are those of the step,
    given where every tap's module returns its state and nothing else: one whose state is known need not be run then,
    such as the first one at the step's own inputs.
    """

    def __init__(
        self,
        net: nn.Module,
        taps: Sequence[str],
        inputs: Any,
        tensors: Mapping[str, Tensor] | None = None,
        states: Sequence[Tensor] | None = None,
    ):
        self.net, self.inputs, self._tensors, self._states = net, inputs, tensors, states
        self.modules = [net.get_submodule(tap) for tap in taps]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Parameters and buffers by name, detached."""
        return detached_tensors(self.net) if self._tensors is None else self._tensors

    def __call__(self, inputs: Any = None, *, at: AtTaps | None = None, shift: AtTaps | None = None) -> Pass:
        if inputs is None:
            return self._pass(self.inputs, at, shift, self._first)
        return self._pass(inputs, at, shift)

    def stages(self, states: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """F_1(s_0), …, F_L(s_{L−1}), head(s_L): every stage but the stem, of its own state alone, in one pass."""
        found = self._pass(self.inputs, states, known=self._first)
        return (*found.states[1:], found.output)

    def head(self, last: Tensor) -> Tensor:
        """The output at another last state; what is below it is not computed again, if that can be."""
        if self._states is None:
            return self._pass(self.inputs, [None] * (len(self.modules) - 1) + [last]).output
        at = [*self._states[:-1], last]
        return self._pass(self.inputs, at, known=at).output

    @property
    def _first(self) -> Sequence[Tensor]:
        """What the first module gives at the step's own inputs, if that is known, and no hook makes it that."""
        return () if self._states is None or self.modules[0]._forward_hooks else self._states[:1]

    def _pass(self, inputs: Any, at: AtTaps | None, shift: AtTaps | None = None, known: Sequence[Tensor] = ()) -> Pass:
        """A pass in which the first modules are not run, but give what is known."""
        none = [None] * len(self.modules)
        states: list[Tensor] = []
        undo: list[Callable[[], None]] = []

        def hand_on(output: Any, instead: Tensor | None, added: Tensor | None) -> Any:
            h, put_in_place = split_state(output)
            states.append(h)
            h = h if instead is None else instead
            return put_in_place(h if added is None else h + added)

        try:
            for i, (module, instead, added) in enumerate(zip(self.modules, at or none, shift or none, strict=True)):
                if i < len(known):
                    used_as_it_is = instead is None and added is None  # perhaps by a module that works in place
                    undo.append(_replace_forward(module, known[i].clone() if used_as_it_is else known[i]))
                hook: Callable = lambda _, __, o, instead=instead, added=added: hand_on(o, instead, added)  # noqa: E731
                undo.append(module.register_forward_hook(hook).remove)
            with plain_attention():
                return Pass(states, self._run(inputs, [*(at or ()), *(shift or ())]))
        finally:
            for restore in undo:
                restore()

    def _run(self, inputs: Any, others: AtTaps) -> Any:
        """The net as it is, which costs less than a functional call, where no backward can reach its parameters.

        That is where nothing given asks for a gradient, or `gradient` and its like ask, for what is given alone.
        """
        if self._tensors is None and not transforms_active():
            asked = any(isinstance(t, Tensor) and t.requires_grad for t in (*leaves_of(inputs), *others))
            if not (asked and torch.is_grad_enabled()):
                with torch.no_grad():
                    return call_module(self.net, inputs)
            if _asking.depth:
                return call_module(self.net, inputs)
        return call_module(self.net, inputs, self.tensors)

    def push(self, tangents: Sequence[Tensor]) -> Tensor:
        """Derivatives of the output along each tangent alone, by forward mode, in one pass through the net.

        From tangents (probes, rows, …), one tensor per tap, to (taps, probes, rows, classes). Every tap adds
        Σ_p s_p T_p to its state h, with all s at 0: the derivative by s_p is the one along T_p. What comes back is a
        copy, because the last bits of sums and products would depend on how many seeds lie between its rows.
        """
        probes = tangents[0].shape[0]
        at = tangents[0].new_zeros(len(self.modules), probes)
        directions = torch.eye(at.numel(), dtype=at.dtype, device=at.device).view(-1, *at.shape)

        def output(amounts: Tensor) -> Tensor:
            return self(shift=[torch.tensordot(s, t, 1) for s, t in zip(amounts, tangents, strict=True)]).output

        with forward_mode():
            pushed = torch.vmap(lambda direction: jvp(output, (at,), (direction,))[1])(directions)
        return pushed.unflatten(0, tuple(at.shape)).clone(memory_format=torch.contiguous_format)


def _replace_forward(module: nn.Module, state: Tensor) -> Callable[[], None]:
    """Let a module give this state, whatever it is called with; the function that undoes it."""
    own = vars(module).get("forward")
    module.forward = lambda *_, **__: state

    def undo() -> None:
        del module.forward
        if own is not None:
            module.forward = own

    return undo


def detached_tensors(net: Net) -> dict[str, Tensor]:
    """Parameters and buffers of a net, or of all seeds of a stack, by name."""
    return {name: t.detach() for name, t in (*net.named_parameters(), *net.named_buffers())}


class _Asking(threading.local):
    """How many backwards are under way that stop at what they are asked for, and reach no parameter."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


_asking = _Asking()


def gradient(function: Callable[[Any], Tensor], at: Any, *, create_graph: bool = False) -> Any:
    """The gradient of a scalar function at a tree of tensors; `create_graph`: to be differentiated in its turn.

    It is `torch.func.grad`'s; one seed alone has it by a plain backward, which costs less.
    """
    if not (leaves := leaves_of(at)):
        return at
    if transforms_active():
        return grad(function)(at)
    with torch.enable_grad(), _asking:
        leaves = [t.detach().requires_grad_() for t in leaves]
        value = function(unflatten(iter(leaves), at))
        if not value.requires_grad:  # it depends on none of them
            return unflatten(map(torch.zeros_like, leaves), at)
        found = torch.autograd.grad(value, leaves, create_graph=create_graph, materialize_grads=True)
    return unflatten(iter(found), at)


def pull_back(function: Callable[..., Sequence[Tensor]], at: Sequence[Tensor], told: Sequence[Tensor]) -> list[Tensor]:
    """Jᵀ a at every tensor of `at`, with one a for each tensor that the function gives; as `gradient` is made."""
    if not at:
        return []
    if transforms_active():
        return list(vjp(function, *at)[1](tuple(told)))
    with torch.enable_grad(), _asking:
        leaves = [t.detach().requires_grad_() for t in at]
        return list(torch.autograd.grad(function(*leaves), leaves, told, materialize_grads=True))


def plain_attention():
    """Inside, attention can be differentiated as often and in which mode one likes; fused kernels cannot."""
    return sdpa_kernel(SDPBackend.MATH)


@contextmanager
def forward_mode() -> Iterator[None]:
    """For `jvp`: without the warning of torch's own use of a function that it deprecates."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):  # the latter since torch 2.15
            warnings.filterwarnings("ignore", message=".*torch.jit.script", category=category)
        yield


def draw_counter(generator: torch.Generator) -> Tensor:
    """Where a rule's random numbers come from: a key, and a count of the steps that were learned in (int64).

    Kept among a rule's feedback: a run that is resumed or stacked then goes on with the same numbers.
    """
    return torch.cat([torch.randint(2**62, (1,), generator=generator), torch.zeros(1, dtype=torch.int64)])


def advanced(counter: Tensor, steps: int = 1) -> Tensor:
    """The counter of the next step, or of so many steps later."""
    one = torch.arange(2, device=counter.device)
    return counter + (one if steps == 1 else steps * one)


def gaussian_probe(counter: Tensor, shape: Sequence[int], dtype: torch.dtype, place: int = 0) -> Tensor:
    """A Gaussian tensor of one step; `place` tells apart those of the same step."""
    return hashed_gaussians(salt_of(counter[0], counter[1], place), shape, dtype)


def gaussian_probes(counter: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Gaussian tensors of one step, of the shapes of these, with their places for places; those alike in one go."""
    alike: dict[tuple, list[int]] = {}
    for place, h in enumerate(like):
        alike.setdefault((tuple(h.shape), h.dtype), []).append(place)
    found: dict[int, Tensor] = {}
    for kind, places in alike.items():
        found |= zip(places, gaussians_of_many([counter] * len(places), places, *kind), strict=True)
    return [found[place] for place in range(len(like))]
