"""What the studies of the league share: rows, one a rule or one of its contested knobs, and blocks of runs of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from creditscope.paper.studies import drop_repeated, over_seeds
from creditscope.paper.studies._recipes import FROZEN
from creditscope.paper.studies.baselines import WHOLE_BACKWARD

MOMENTS: dict[str, Any] = {"snapshot_every": 0, "snapshot_at": "1,4", "tier": "standard"}
"""Before training, after epochs 1 and 4, and at the end; what is dear before and after training only."""
LAMBDA = 1e-2
FAMILIES = {
    "transport": ("fa", "sign_fa", "kp", "wm"),
    "broadcast": ("dfa", "drtp", "dkp", "fdfa", "grape", "dfa_gnn", "kaft"),
    "chain": ("block_fa", "ldrl", "dtp", "dni", "state_bridge", "credit_bridge"),
    "forward only": ("forward_gradient", "pepita"),
    "settling": ("pc", "ep"),
    "local loss": ("local",),
}
UNBOUNDED = tuple(rule for name in ("broadcast", "chain", "forward only") for rule in FAMILIES[name])
"""Rules whose local objective ⟨h, a⟩ has no lower bound: they are asked with a penalty, too."""


@dataclass(frozen=True)
class Row:
    """A rule with some of its options; the others have their defaults, which are not tuned."""

    rule: str
    options: dict[str, Any] = field(default_factory=dict)
    penalties: tuple[float, ...] = (0.0,)
    credit_norm: str = "none"
    local: bool = True
    """Whether the penalty of a block stays in it: one frozen twin then serves every λ."""

    def names(self) -> tuple[str, ...]:
        """What `record.table.method_name` calls its runs, one name a penalty."""
        plain = [self.rule, *(f"{name} {value}" for name, value in self.options.items())]
        plain += [f"norm {self.credit_norm}"] if self.credit_norm != "none" else []
        return tuple(", ".join([*plain, f"λ {p:g}"] if p else plain) for p in self.penalties)

    def fields(self, penalty: float) -> dict[str, Any]:
        """Those of its runs at one of its penalties."""
        named = {"rule": self.rule, "rule_options": self.options, "penalty": penalty}
        return named if self.credit_norm == "none" else {**named, "credit_norm": self.credit_norm}


@dataclass(frozen=True)
class Block:
    """Rows by one recipe, with BP beside them (unless nothing asks for it) and, where there are blocks to freeze, each
    with its frozen twin.
    """

    recipe: dict[str, Any]
    rows: tuple[Row, ...]
    seeds: Sequence[int]
    twins: bool = True
    bp: bool = True

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """BP first, at every penalty that a row has."""
        if not self.bp:
            return self.rows
        penalties = dict.fromkeys((0.0, *(p for row in self.rows for p in row.penalties)))
        return Row("bp", penalties=tuple(penalties)), *self.rows

    def plan(self, seeds: Sequence[int] = ()) -> tuple[dict[str, Any], ...]:
        """The wanted runs, on its own seeds or others."""
        conditions = []
        for row in self.all_rows:
            for penalty in row.penalties:
                trained = {**self.recipe, **row.fields(penalty)}
                reaches_stem = row.rule in WHOLE_BACKWARD or not row.local
                twin = {**trained, **FROZEN, "penalty": penalty if reaches_stem else 0.0}
                conditions += [trained, twin] if self.twins else [trained]
        return drop_repeated(over_seeds(conditions, seeds or self.seeds))


def base(*rules: str, **options: Any) -> tuple[Row, ...]:
    """Rules by their defaults (or all with these options), those that are unbounded without and with the penalty."""
    return tuple(Row(rule, options, (0.0, LAMBDA) if rule in UNBOUNDED else (0.0,)) for rule in rules)
