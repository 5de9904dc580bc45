"""How far weights moved between two snapshots, by a sample of their entries: a copy of the model is not kept."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

ENTRIES = 4096
"""Of each weight, spread evenly."""


@dataclass(frozen=True)
class WeightSample:
    """Entries of every weight, and the sum of all of them, which moves if any does."""

    entries: dict[str, Tensor]
    totals: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, weights: Mapping[str, Tensor]) -> "WeightSample":
        totals = [w.detach().sum(dtype=torch.float64) for w in weights.values()]
        return cls({name: _entries(w).clone() for name, w in weights.items()}, torch.stack(totals))


def _entries(weight: Tensor) -> Tensor:
    flat = weight.detach().reshape(-1)
    step = -(-flat.numel() // ENTRIES)
    return flat[:: step + (step > 1 and step % 2 == 0)]  # an odd step does not stay in one column


def measure_movement(now: WeightSample, before: WeightSample | None) -> dict[str, Tensor]:
    """Per weight ‖ΔW‖/‖W‖ over the sample, and whether any entry changed; NaN without an earlier snapshot."""
    if before is None:
        unknown = torch.full_like(now.totals, torch.nan)
        return {"update": unknown, "changed": unknown}
    pairs = [(now.entries[name].double(), before.entries[name].double()) for name in now.entries]
    moved = torch.stack([(new - old).norm() for new, old in pairs])
    size = torch.stack([torch.maximum(new.norm(), old.norm()) for new, old in pairs])
    changed = (moved != 0) | (now.totals != before.totals)
    return {"update": torch.where(moved == 0, 0.0, moved / size), "changed": changed}
