"""What the studies of images share: seeds, the nets' sizes, and the recipe, as published and small on embedded data."""

from typing import Any

SEEDS = (42, 123, 456)
"""Those of the published runs, which exports carry."""
TWENTY_SEEDS = (*SEEDS, *range(1, 18))
TEN_SEEDS = TWENTY_SEEDS[:10]

RESMLP = {"depth": 4, "width": 256, "terminal_norm": True}
VIT = {"depth": 4, "width": 128, "heads": 4, "ratio": 2, "patch": 4, "dropout": 0.0, "terminal_norm": True}
STUDENT = {"depth": 4, "width": 128, "alpha": 1.0}

PAPER: dict[str, Any] = {"task": "cifar10", "net": "resmlp", "net_options": RESMLP, "epochs": 100}
"""ResMLP on CIFAR-10; everything else is a run's default: AdamW 1e-3, decay 0.01, cosine, batch 128, every epoch."""
DEMO: dict[str, Any] = {
    "task": "mnist1d",
    "net": "resmlp",
    "net_options": {**RESMLP, "width": 128},
    "epochs": 60,
    "snapshot_every": 5,
}
TEST: dict[str, Any] = {
    **DEMO,
    "net_options": {**RESMLP, "depth": 3, "width": 16},
    "epochs": 2,
    "eval_rows": 128,
    "snapshot_every": 1,
}
AT_THE_END = {"snapshot_every": 0, "snapshot_at": "", "tier": "quick"}
"""For runs that are read at their end only: conditions of a large grid."""
FROZEN = {**AT_THE_END, "noise": False, "frozen": True}
"""For baselines, of which only the accuracy is read."""
THIN = {"snapshot_every": 0, "snapshot_at": "1,2,3,4,6,8,12,16,24,32,48,64,80"}
"""For runs whose course is only looked at roughly."""


def without_norm(recipe: dict[str, Any]) -> dict[str, Any]:
    """The same net without its terminal LayerNorm."""
    return {**recipe, "net_options": {**recipe["net_options"], "terminal_norm": False}}
