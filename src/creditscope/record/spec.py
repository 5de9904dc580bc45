"""What is asked of a run: its recipe, its spec, and what of a spec makes runs alike. No torch."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal, get_args

from creditscope.errors import CreditscopeError
from creditscope.options import Scalar

CreditNorm = Literal["none", "batch", "sample", "sample-mean"]
COMPARED_NORMS: tuple[CreditNorm, ...] = ("none", "batch", "sample")
"""Those that the control "norms" and the figure of normalisation set side by side."""
Tier = Literal["quick", "standard", "full"]
"""How much a snapshot measures, least first."""
TIERS = get_args(Tier)
RULE_FIELDS = ("rule", "rule_options", "rule_source", "credit_norm", "penalty")
"""Fields of a spec that tell one method from another on the same task and net."""
MEASURING_FIELDS = ("snapshot_every", "snapshot_at", "tier", "noise", "eval_rows")
"""Fields that change what is measured and nothing of the training."""
FREE_FIELDS = ("seed", "frozen", "train_last")
LATER_FIELDS = {"decay_on": "all"}
"""Fields that came after the first records of this schema; at these values they are no part of the hash."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a run is trained and measured."""

    epochs: int = 60
    """Passes over the training data; on a graph, steps."""
    credit_norm: CreditNorm = "none"
    """Normalisation of a tap rule's credit: none, by the RMS of the batch or of each sample, or by that of each sample
    with its eps on credit of the mean loss and chains left as they are (sample-mean)."""
    penalty: float = 0.0
    """λ of the residual penalty λ‖f_l‖²."""
    frozen: bool = False
    """Do not train the blocks (stem, norm and head only)."""
    train_last: int = -1
    """Train only this many of the last blocks (a rung of the depth ladder); -1: all."""
    targets: Literal["true", "random", "redrawn"] = "true"
    """Labels to train on; random ones, drawn once per seed or redrawn for every minibatch, are a control."""
    optimiser: Literal["adamw", "adam", "sgd"] = "adamw"
    """AdamW, Adam with an L2 term, or plain SGD."""
    lr: float = 1e-3
    """Learning rate at the start."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate over epochs: half a cosine to 0, or constant."""
    weight_decay: float = 0.01
    """Weight decay (decoupled under AdamW, an L2 term under the others)."""
    decay_on: Literal["all", "first"] = "all"
    """Which weights decay: all, or those of the first layer only (up to tap 0)."""
    batch: int = 128
    """Rows per step; an incomplete last batch is dropped; a graph is one batch."""
    precision: Literal["float32", "tf32", "float64"] = "float32"
    """Number format of weights and data; tf32 (CUDA only) rounds the factors of float32 matrix products."""
    eval_rows: int = 1024
    """Test rows that snapshots are taken on."""
    snapshot_every: int = 1
    """Epochs between snapshots; 0: only before and after training."""
    snapshot_at: str = ""
    """Other epochs for snapshots: log (1, 2, 4, 8, …), or a list such as 1,5,20; before and after training always."""
    tier: Tier = "standard"
    """How much a snapshot measures: quick (no float64 and no controls but the cheap ones, and rewound blocks, at the
    end), standard (everything before and after training, the cheap measurements in between), full (everything,
    always)."""
    noise: bool = True
    """Whether gradients are recomputed in float64 to see if they are resolved."""


@dataclass(frozen=True, kw_only=True)
class RunSpec(Recipe):
    """What was asked of one run. Its hash is the run's name, so equal specs are one run."""

    task: str
    task_options: dict[str, Scalar] = field(default_factory=dict)
    data_version: str = ""
    net: str
    net_options: dict[str, Scalar] = field(default_factory=dict)
    net_source: str = ""
    """Digest of a user's own net; empty for a built-in one."""
    rule: str
    rule_options: dict[str, Scalar] = field(default_factory=dict)
    rule_source: str = ""
    """Digest of a user's own rule; empty for a built-in one."""
    seed: int = 42

    def __post_init__(self) -> None:
        """Whole numbers typed for real ones are the same run."""
        for name, kind in (("penalty", float), ("lr", float), ("weight_decay", float), ("seed", int)):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, kind(value))
            except (TypeError, ValueError):
                raise CreditscopeError(f"Expected {name} to be a number, but got {value!r}.") from None

    @property
    def random_targets(self) -> bool:
        return self.targets != "true"

    def setting(self, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """The fields that runs must share to be compared: all but seed, frozen blocks and how they were measured."""
        left_out = (*FREE_FIELDS, *MEASURING_FIELDS, *without)
        return {name: getattr(self, name) for name in _names() if name not in left_out}

    def snapshot_due(self, epoch: int) -> bool:
        """Before training, at the end, and as `snapshot_at` says or else every `snapshot_every` epochs (0: never).

        >>> spec = RunSpec(task="t", net="n", rule="r", epochs=10, snapshot_at="log")
        >>> [epoch for epoch in range(11) if spec.snapshot_due(epoch)]
        [0, 1, 2, 4, 8, 10]
        """
        if epoch in (0, self.epochs):
            return True
        if self.snapshot_at == "log":
            return epoch & (epoch - 1) == 0
        if self.snapshot_at:
            return epoch in listed_epochs(self.snapshot_at)
        return self.snapshot_every > 0 and epoch % self.snapshot_every == 0

    def measures(self, other: "RunSpec") -> bool:
        """Whether a record of this run holds whatever one of `other`, which is trained alike, would hold."""
        return (
            TIERS.index(self.tier) >= TIERS.index(other.tier)
            and self.noise >= other.noise
            and self.eval_rows == other.eval_rows
            and (
                all(getattr(self, n) == getattr(other, n) for n in ("snapshot_every", "snapshot_at", "epochs"))
                or all(self.snapshot_due(e) for e in range(other.epochs + 1) if other.snapshot_due(e))
            )
        )

    def stack_key(self) -> str:
        """Equal for runs that differ only in their seed."""
        return json.dumps({**asdict(self), "seed": None}, sort_keys=True)

    def digest(self) -> str:
        """Content hash over every field, but for later ones that change nothing: earlier records keep their names."""
        asked = {name: getattr(self, name) for name in _names()}
        asked = {n: v for n, v in asked.items() if n not in LATER_FIELDS or v != LATER_FIELDS[n]}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def name(self) -> str:
        """Folder name: readable words, then the hash."""
        net, rule = (word.rpartition(":")[2] for word in (self.net, self.rule))  # of path/to/file.py:Class
        frozen = "-frozen" if self.frozen else ""
        return f"{self.task}-{net}-{rule}{frozen}-s{self.seed}-{self.digest()}"


@cache
def _names() -> tuple[str, ...]:
    return tuple(f.name for f in fields(RunSpec))


def listed_epochs(text: str) -> tuple[int, ...]:
    """Epochs written as a list.

    >>> listed_epochs("1, 5,20")
    (1, 5, 20)
    """
    try:
        epochs = tuple(int(word) for word in text.split(","))
    except ValueError:
        epochs = (-1,)
    if min(epochs) < 0:
        raise CreditscopeError(f"Expected snapshot_at to be 'log' or epochs such as '1,5,20', but got {text!r}.")
    return epochs
