"""Where a run stands, in one file that is written whole or not at all: weights, feedback, optimiser state, position.

Randomness has names (seed, purpose, epoch), so nothing of it has to be saved.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.train.run import Run

NAME = "checkpoint.safetensors"
OPTIMISER = "optimiser/"


@dataclass(frozen=True)
class Position:
    """Epochs trained, snapshot lines written, and seconds spent until then."""

    epoch: int
    lines: int
    seconds: float


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file beside, then rename; tied tensors are stored apart."""
    part = path.with_name(path.name + ".part")
    save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, part, metadata)
    part.replace(path)


def save_checkpoint(path: Path, run: Run, position: Position, seed: int = 0) -> None:
    """Everything that seed number `seed` of a run needs to go on from here, alone or in any stack."""
    tensors = run.tensors(seed)
    for index, state in run.optimiser_state(seed).items():
        tensors |= {f"{OPTIMISER}{index}/{key}": value for key, value in state.items()}
    save_tensors(path, tensors, {key: str(value) for key, value in vars(position).items()})


def load_checkpoint(path: Path, run: Run) -> Position:
    """Put `run` where the checkpoint was taken; raises if the file is damaged or of another run."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        position = Position(int(metadata["epoch"]), int(metadata["lines"]), float(metadata["seconds"]))
        _restore(run, tensors)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CreditscopeError(f"Checkpoint {path.name} cannot be used: {error}.") from error
    return position


@torch.no_grad()
def _restore(run: Run, tensors: dict[str, Tensor]) -> None:
    saved = {name: t for name, t in tensors.items() if not name.startswith(OPTIMISER)}
    for name, tensor in run.application.applied.tensors().items():
        tensor.copy_(saved.pop(name))
    assert isinstance(run.net, nn.Module)  # stacks are made from single runs that were restored
    run.net.load_state_dict(saved)
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(OPTIMISER):
            index, key = name.removeprefix(OPTIMISER).split("/")
            state.setdefault(int(index), {})[key] = tensor
    run.optimiser.load_state_dict({**run.optimiser.state_dict(), "state": state})
