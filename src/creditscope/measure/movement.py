"""How far weights moved between two snapshots, by a sample of their entries, so that no copy of the model is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.measure.samples import dispersions, few_entries

ENTRIES = 4096
"""Of each weight, spread evenly."""


@dataclass(frozen=True)
class WeightSample:
    """Entries of every weight, and the sum of all of them, which moves if any does."""

    entries: Tensor
    """Of all weights, one after the other."""
    owners: Tensor
    """Which weight each entry is of."""
    totals: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, weights: Mapping[str, Tensor], before: "WeightSample | None" = None) -> "WeightSample":
        """Of weights as they are; one of the same weights `before` spares some work."""
        parts = [_entries(w) for w in weights.values()]
        totals = torch.stack([w.detach().sum(dtype=torch.float64) for w in weights.values()])
        entries = torch.cat([part.to(parts[0]) for part in parts])
        if before is not None and len(before.entries) == len(entries):
            return cls(entries, before.owners, totals)
        sizes = torch.tensor([len(part) for part in parts])
        return cls(entries, torch.arange(len(parts)).repeat_interleave(sizes).to(entries.device), totals)

    def sizes(self, values: Tensor) -> Tensor:
        """√Σx² over the entries of each weight, in float64."""
        return torch.zeros_like(self.totals).index_add_(0, self.owners, values.double().square()).sqrt()


def _entries(weight: Tensor) -> Tensor:
    flat = weight.detach().reshape(-1)
    step = -(-flat.numel() // ENTRIES)
    return flat[:: step + (step > 1 and step % 2 == 0)]  # an odd step does not stay in one column


def measure_movement(now: WeightSample, before: WeightSample | None) -> dict[str, Tensor]:
    """Per weight ‖ΔW‖/‖W‖ over the sample, and whether any entry changed; NaN without an earlier snapshot."""
    if before is None:
        unknown = torch.full_like(now.totals, torch.nan)
        return {"update": unknown, "changed": unknown}
    moved = now.sizes(now.entries.double() - before.entries.double())
    size = torch.maximum(now.sizes(now.entries), before.sizes(before.entries))
    changed = (moved != 0) | (now.totals != before.totals)
    return {"update": torch.where(moved == 0, 0.0, moved / size), "changed": changed}


def unit_spreads(weights: Sequence[Tensor]) -> Tensor:
    """How much the rows of each matrix, one a unit, differ, over their size; NaN for what has no rows, or is zero."""
    matrices = [few_entries(w.detach()) if w.ndim > 1 and len(w) > 1 else None for w in weights]
    unknown = torch.full((), torch.nan, device=weights[0].device)
    return torch.stack([unknown if found is None else found for found in dispersions(matrices)])
