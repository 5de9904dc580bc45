"""Ablation: accuracy with one block put back to where it began, or left out; whether the net depends on the block.

And where the training of a watched model began: the tensors that a user kept, or what little is remembered of them.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from creditscope.errors import CreditscopeError
from creditscope.measure.functional_net import Subject, replaced_states
from creditscope.stack import Batch, call_net
from creditscope.text import first_few

FIRST_STATISTICS = {"running_mean": 0, "running_var": 1, "num_batches_tracked": 0}
KEEP = "Keep copy.deepcopy(model.state_dict()) of this model before it is trained."


@torch.no_grad()
def measure_rewind(subject: Subject) -> dict[str, Tensor]:
    """Accuracy with the stage before a tap alone as it was before training, and with batch norms estimated anew.

    NaN for the first stage, for one that is not trained and for one that shares a parameter; nothing at all without
    class labels or the tensors that training began with, nor of the second without batch norms. With them,
    `accuracy_refit` is that of the net with nothing put back and batch norms estimated anew: what the second is
    compared with.
    """
    if subject.initial is None or subject.test is None:
        return {}
    names = {stage: own for stage in range(1, len(subject.taps)) if (own := _tensors_of(subject, stage))}
    norms = _batch_norms(subject.net)
    found = {name: _nothing(subject) for name in ("rewind", *["rewind_refit"] * bool(norms))}
    if not names:
        return found
    began, batches = subject.initial(), list(subject.test())
    rows = subject.probe()[0] if norms and subject.probe is not None else None
    other = subject.net if rows is None else copy.deepcopy(subject.net).eval()
    if rows is not None:
        found["accuracy_refit"] = _accuracy(other, _refitted(other, subject.tensors, rows), batches)
    for stage, own in names.items():
        kept = {name: began[name].to(subject.tensors[name], copy=True) for name in own if name in began}
        tensors = {**subject.tensors, **kept}
        found["rewind"][stage] = _accuracy(subject.net, tensors, batches)
        if rows is not None:
            found["rewind_refit"][stage] = _accuracy(other, _refitted(other, tensors, rows), batches)
    return found


def _nothing(subject: Subject) -> Tensor:
    """A number per tap, none of them known."""
    return torch.full((len(subject.taps),), torch.nan, dtype=torch.float64, device=subject.target.device)


def _tensors_of(subject: Subject, stage: int) -> list[str]:
    """Parameters and buffers of a stage, by name; none if it is not trained, or shares a parameter with another."""
    stages = subject.applied.anatomy.stages
    others = {name for i, names in enumerate(stages) if i != stage for name in names}
    own = set(stages[stage])
    if own.isdisjoint(subject.trained) or own & others:
        return []
    loose = (name for name in subject.tensors if name not in own | others)
    return [*own, *(name for name in loose if _stages_of(subject, name) == {stage})]


def _stages_of(subject: Subject, name: str) -> set[int]:
    """Where a tensor that is not trained belongs: with those of its module that are, or else to the tap around it."""
    owner = _owner(name)
    beside = {i for i, names in enumerate(subject.applied.anatomy.stages) if owner in map(_owner, names)}
    around = [i for i, tap in enumerate(subject.taps) if f"{owner}.".startswith(f"{tap}.")]
    return beside or set(sorted(around, key=lambda i: len(subject.taps[i]))[-1:])


def _owner(name: str) -> str:
    """The module that a parameter or buffer is of."""
    return name.rpartition(".")[0]


def _accuracy(net: nn.Module, tensors: Mapping[str, Tensor], batches: Sequence[Batch]) -> Tensor:
    """The share of rows that count that are classified rightly."""
    right = [b.only_scored(call_net(net, b.inputs, tensors).argmax(-1) == b.target) for b in batches]
    return torch.cat(right).double().mean()


def _batch_norms(net: nn.Module) -> dict[str, _BatchNorm]:
    """Those that keep running statistics, by name."""
    norms = {name: m for name, m in net.named_modules() if isinstance(m, _BatchNorm)}
    return {name: m for name, m in norms.items() if m.track_running_stats and m.running_mean is not None}


def _refitted(net: nn.Module, tensors: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """The tensors with the statistics of all batch norms estimated on a batch; a net in eval mode stays so."""
    norms = _batch_norms(net)
    first = {f"{norm}.{key}".removeprefix("."): value for norm in norms for key, value in FIRST_STATISTICS.items()}
    fitted = {name: torch.full_like(tensors[name], value) for name, value in first.items() if name in tensors}
    for norm in norms.values():
        norm.train().momentum = None  # the mean over all that it sees
    call_net(net, batch.inputs, {**tensors, **fitted})  # writes into what is fitted
    for norm in norms.values():
        norm.eval()
    return {**tensors, **fitted}


@torch.no_grad()
def measure_skips(subject: Subject) -> dict[str, Tensor]:
    """Accuracy if the stage before a tap handed on the state of the tap before; NaN where it does not add to that."""
    if subject.test is None:
        raise CreditscopeError("Expected class labels, but got a loss of another kind.")
    anatomy, names = subject.applied.anatomy, subject.taps
    batches = list(subject.test()) if any(anatomy.residual) else []
    found, kept = _nothing(subject), []

    def keep(h: Tensor) -> Tensor:
        kept[:] = [h.clone()]  # the stage may work in place
        return h

    for tap, adds in enumerate(anatomy.residual):
        if adds and anatomy.shapes[tap] == anatomy.shapes[tap - 1]:
            with replaced_states(subject.net, {names[tap - 1]: keep, names[tap]: lambda h: kept[0]}):
                found[tap] = _accuracy(subject.net, subject.tensors, batches)
    return {"skip_one": found}


def check_initial(model: nn.Module, initial: Any) -> None:
    """Refuse what is not a copy of all parameters of the model; buffers may be missing."""
    if not isinstance(initial, Mapping):
        raise CreditscopeError(f"Expected initial to be a state dict, but got a {type(initial).__name__}. {KEEP}")
    if missing := [name for name, _ in model.named_parameters() if name not in initial]:
        lacking = first_few(missing, 4)
        raise CreditscopeError(f"Expected initial to hold every parameter of the model, but it lacks {lacking}. {KEEP}")
    for name, p in model.named_parameters():
        kept = initial[name]
        found = f"shape {tuple(kept.shape)}" if isinstance(kept, Tensor) else f"a {type(kept).__name__}"
        if found != f"shape {tuple(p.shape)}":
            raise CreditscopeError(
                f"Expected initial to hold {name} as a tensor of shape {tuple(p.shape)}, but got {found}. {KEEP}"
            )
        if kept.data_ptr() == p.data_ptr() and p.numel():
            raise CreditscopeError(
                "Expected initial to be a copy of what training began with, but got the tensors of the model itself, "
                f"which training changes. {KEEP}"
            )


def is_at(model: nn.Module, initial: Mapping[str, Tensor]) -> bool:
    """Whether all that is trained is as it was."""
    trained = ((name, p.detach()) for name, p in model.named_parameters() if p.requires_grad)
    return all(torch.equal(p, initial[name].to(p)) for name, p in trained)


@torch.no_grad()
def fingerprint(model: nn.Module) -> dict[str, tuple[float, float]]:
    """Sum and norm of every parameter that is trained, in float64: the same only if no step was taken in between."""
    trained = {
        name: p
        for name, p in model.named_parameters()
        if p.requires_grad and p.is_floating_point() and not is_lazy(p) and not p.is_meta
    }
    if not trained:
        return {}
    sums = [p.sum(dtype=torch.float64) for p in trained.values()]
    norms = [torch.linalg.vector_norm(p, dtype=torch.float64) for p in trained.values()]
    device = sums[0].device
    pairs = torch.stack([torch.stack([t.to(device) for t in side]) for side in (sums, norms)]).T.tolist()
    return {name: (total, norm) for name, (total, norm) in zip(trained, pairs, strict=True)}
