"""One net at one moment, with what a measurement may run it on: a net of its own, or one seed of a stack."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from creditscope.losses import RowLoss
from creditscope.rules import AppliedRule, AppliedTapRule, FeedbackLinear
from creditscope.stack import Batch, Net, StackedNet, pattern_of


@dataclass(frozen=True)
class Subject:
    """A net as a pattern and its tensors by name; buffers are copies, so that no forward can change the net's own."""

    net: nn.Module
    tensors: dict[str, Tensor]
    applied: AppliedRule
    """Bound to the pattern, with this seed's feedback."""
    seed: int
    """Of all that is drawn."""
    inputs: Any
    """The snapshot's rows, as the net is called with them."""
    target: Tensor
    mask: Tensor | None = None
    loss: RowLoss | None = None
    probe: Callable[[], tuple[Batch, Batch]] | None = None
    """Rows to train a probe on, and rows to test it on; None if there are no class labels."""
    test: Callable[[], Iterable[Batch]] | None = None
    """The rows that accuracy is over; None if there are no class labels."""
    initial: Callable[[], Mapping[str, Tensor]] | None = None
    """The tensors before training, by name; None if they are not known."""

    @property
    def taps(self) -> tuple[str, ...]:
        """Names, in the order of all lists per tap."""
        return self.applied.anatomy.taps

    @property
    def trained(self) -> list[str]:
        """Names of the parameters that are trained."""
        return [name for name, p in self.net.named_parameters() if p.requires_grad]


def subjects_of(net: Net, applied: AppliedRule, seeds: Sequence[int], **shared: Any) -> list[Subject]:
    """One subject per seed of a stack, or the one of a net; `shared` are the fields that do not differ."""
    pattern = pattern_of(net)
    if not isinstance(net, StackedNet):
        return [Subject(pattern, _tensors(net), applied, seeds[0], **shared)]
    found = []
    for place, seed in enumerate(seeds):
        own = replace(applied, net=pattern)
        if isinstance(own, AppliedTapRule):
            own = replace(own, feedback=[b[place] for b in own.feedback])
        found.append(Subject(pattern, _tensors(net, place), own, seed, **shared))
    return found


def _tensors(net: Net, place: int | None = None) -> dict[str, Tensor]:
    def own(tensor: Tensor) -> Tensor:
        return tensor.detach() if place is None else tensor.detach()[place]

    buffers = {name: own(b).clone() for name, b in net.named_buffers()}
    return {**{name: own(p) for name, p in net.named_parameters()}, **buffers}


def feedback_names(net: Net) -> dict[str, str]:
    """For every weight with feedback, by name, the name of the buffer that holds it."""
    pattern = pattern_of(net)
    name_of = {id(p): name for name, p in pattern.named_parameters()}
    layers = {name: m for name, m in pattern.named_modules() if isinstance(m, FeedbackLinear)}
    return {name_of[id(layer.weight)]: f"{name}.feedback" for name, layer in layers.items()}
