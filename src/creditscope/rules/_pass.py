"""One pass of the net with states replaced or shifted at taps: what rules beyond products with the error are made of.

It is a function of plain tensors, for `torch.func.grad`, `jvp`, `vjp` and `vmap`, of one seed or inside the map over
seeds. Loops over passes have a fixed length, and nothing asks the device for a number, so that a step can be captured.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from creditscope.rng import hashed_gaussians, salt_of
from creditscope.stack import call_module
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
    replaced, nothing is added).
    """

    def __init__(self, net: nn.Module, taps: Sequence[str], inputs: Any, tensors: Mapping[str, Tensor]):
        self.net, self.taps, self.inputs, self.tensors = net, taps, inputs, dict(tensors)

    def __call__(self, inputs: Any = None, *, at: AtTaps | None = None, shift: AtTaps | None = None) -> Pass:
        none = [None] * len(self.taps)
        states: list[Tensor] = []

        def hand_on(output: Any, instead: Tensor | None, added: Tensor | None) -> Any:
            h, put_in_place = split_state(output)
            states.append(h)
            h = h if instead is None else instead
            return put_in_place(h if added is None else h + added)

        with ExitStack() as hooks, plain_attention():
            for tap, instead, added in zip(self.taps, at or none, shift or none, strict=True):
                hook: Callable = lambda _, __, o, instead=instead, added=added: hand_on(o, instead, added)  # noqa: E731
                hooks.callback(self.net.get_submodule(tap).register_forward_hook(hook).remove)
            return Pass(states, call_module(self.net, self.inputs if inputs is None else inputs, self.tensors))

    def stages(self, states: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """F_1(s_0), …, F_L(s_{L−1}), head(s_L): every stage but the stem, of its own state alone, in one pass."""
        found = self(at=states)
        return (*found.states[1:], found.output)

    def push(self, tangents: Sequence[Tensor]) -> Tensor:
        """Derivatives of the output along each tangent alone, by forward mode, in one pass through the net.

        From tangents (probes, rows, …), one tensor per tap, to (taps, probes, rows, classes). Every tap adds
        Σ_p s_p T_p to its state h, with all s at 0: the derivative by s_p is the one along T_p. What comes back is a
        copy, because the last bits of sums and products would depend on how many seeds lie between its rows.
        """
        probes = tangents[0].shape[0]
        at = tangents[0].new_zeros(len(self.taps), probes)
        directions = torch.eye(at.numel(), dtype=at.dtype, device=at.device).view(-1, *at.shape)

        def output(amounts: Tensor) -> Tensor:
            return self(shift=[torch.tensordot(s, t, 1) for s, t in zip(amounts, tangents, strict=True)]).output

        with forward_mode():
            pushed = torch.vmap(lambda direction: jvp(output, (at,), (direction,))[1])(directions)
        return pushed.unflatten(0, tuple(at.shape)).clone(memory_format=torch.contiguous_format)


def plain_attention():
    """Inside, attention can be differentiated as often and in which mode one likes; fused kernels cannot."""
    return sdpa_kernel(SDPBackend.MATH)


@contextmanager
def forward_mode() -> Iterator[None]:
    """For `jvp`: without the warning of torch's own use of a function that it deprecates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)
        yield


def draw_counter(generator: torch.Generator) -> Tensor:
    """Where a rule's random numbers come from: a key, and a count of the steps that were learned in (int64).

    Kept among a rule's feedback: a run that is resumed or stacked then goes on with the same numbers.
    """
    return torch.cat([torch.randint(2**62, (1,), generator=generator), torch.zeros(1, dtype=torch.int64)])


def advanced(counter: Tensor, steps: int = 1) -> Tensor:
    """The counter of the next step, or of so many steps later."""
    return counter + steps * torch.arange(2, device=counter.device)


def gaussian_probe(counter: Tensor, shape: Sequence[int], dtype: torch.dtype, place: int = 0) -> Tensor:
    """A Gaussian tensor of one step; `place` tells apart those of the same step."""
    return hashed_gaussians(salt_of(counter[0], counter[1], place), shape, dtype)
