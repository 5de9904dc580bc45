"""Where the training of a watched model began: the tensors that a user kept, or what little is remembered of them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from creditscope.errors import CreditscopeError
from creditscope.text import first_few

NAMED = 4
"""Missing parameters that a refusal names."""
KEEP = "Keep copy.deepcopy(model.state_dict()) of this model before it is trained."


def check_initial(model: nn.Module, initial: Any) -> None:
    """Refuse what is not a copy of all parameters of the model; buffers may be missing."""
    if not isinstance(initial, Mapping):
        raise CreditscopeError(f"Expected initial to be a state dict, but got a {type(initial).__name__}. {KEEP}")
    missing = [name for name, _ in model.named_parameters() if name not in initial]
    if missing:
        raise CreditscopeError(
            f"Expected initial to hold every parameter of the model, but it lacks {first_few(missing, NAMED)}. {KEEP}"
        )
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
    trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point())
    return {
        name: (float(p.sum(dtype=torch.float64)), float(torch.linalg.vector_norm(p, dtype=torch.float64)))
        for name, p in trained
        if not is_lazy(p) and not p.is_meta
    }
