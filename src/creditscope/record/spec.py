"""What is asked of a run: its recipe, its spec, and what of a spec makes runs alike. No torch."""

import hashlib
import json
import math
from collections.abc import Iterator
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
LARGEST = 2**53
"""Whole numbers beyond it are no counts, and a float cannot hold them."""
WHOLE = {"epochs": 1, "batch": 1, "eval_rows": 2, "snapshot_every": 0, "train_last": -1}  # at least
FRACTIONS = {"penalty": 0, "weight_decay": 0}


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
    schedule: Literal["cosine", "constant", "steps"] = "cosine"
    """Learning rate over epochs: half a cosine to 0, constant, or a tenth after two, three and four fifths of them."""
    weight_decay: float = 0.01
    """Weight decay (decoupled under AdamW, an L2 term under the others)."""
    decay_on: Literal["all", "first"] = "all"
    """Which weights decay: all, or those of the first layer only (up to tap 0)."""
    batch: int = 128
    """Rows per step; an incomplete last batch is dropped; a graph is one batch."""
    precision: Literal["float32", "tf32", "float64"] = "float32"
    """Number format of weights and data; tf32 (CUDA only) rounds the factors of float32 matrix products and
    convolutions."""
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
            except (TypeError, ValueError, OverflowError):
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

    def due_epochs(self) -> Iterator[int]:
        """All epochs that are due, in order, one by one.

        >>> list(RunSpec(task="t", net="n", rule="r", epochs=10, snapshot_every=4).due_epochs())
        [0, 4, 8, 10]
        """
        if self.snapshot_at == "log":
            between: Any = (2**i for i in range(self.epochs.bit_length()))
        elif self.snapshot_at:
            between = sorted(set(listed_epochs(self.snapshot_at)))
        else:
            between = range(0, self.epochs, self.snapshot_every) if self.snapshot_every else ()
        yield 0
        yield from (epoch for epoch in between if 0 < epoch < self.epochs)
        yield self.epochs

    def measures(self, other: "RunSpec") -> bool:
        """Whether a record of this run holds whatever one of `other`, which is trained alike, would hold."""
        return (
            TIERS.index(self.tier) >= TIERS.index(other.tier)
            and self.noise >= other.noise
            and self.eval_rows == other.eval_rows
            and (
                all(getattr(self, n) == getattr(other, n) for n in ("snapshot_every", "snapshot_at", "epochs"))
                or all(map(self.snapshot_due, other.due_epochs()))
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


def check_numbers(spec: RunSpec) -> None:
    """Refuse what no run should start with, and no record can hold."""
    options = {"task": spec.task_options, "net": spec.net_options, "rule": spec.rule_options}
    typed = {f"option {name!r} of the {owner}": v for owner, own in options.items() for name, v in own.items()}
    for name, value in {**vars(spec), **typed}.items():
        if isinstance(value, int) and abs(value) > LARGEST:
            raise CreditscopeError(f"Expected {name} to be at most 2^53 = {LARGEST}, but got a larger whole number.")
        if name in typed and isinstance(value, float) and not math.isfinite(value):
            raise CreditscopeError(f"Expected {name} to be a finite number, but got {value}.")
    for name, least in {**WHOLE, **FRACTIONS}.items():
        value, kind = getattr(spec, name), "whole" if name in WHOLE else "finite"
        if isinstance(value, str) or not value >= least:
            raise CreditscopeError(f"Expected {name} >= {least}, but got {value}.")
        if not math.isfinite(value) or (kind == "whole" and (value != int(value) or value > LARGEST)):
            raise CreditscopeError(f"Expected {name} to be a {kind} number, but got {value}.")
    if not 0 < spec.lr < math.inf:
        raise CreditscopeError(f"Expected a learning rate lr > 0, but got {spec.lr}.")
    for name, choices in ((f.name, get_args(f.type)) for f in fields(Recipe)):
        if choices and (value := getattr(spec, name)) not in choices:
            raise CreditscopeError(f"Expected {name} to be one of {', '.join(choices)}, but got {value!r}.")
    if spec.snapshot_at and spec.snapshot_at != "log":
        listed_epochs(spec.snapshot_at)
    if spec.frozen and spec.train_last != -1:
        raise CreditscopeError(
            f"Expected frozen blocks or a number of last blocks to train, but got train_last {spec.train_last} beside "
            "frozen. Leave one out."
        )
