"""Records of study `penalty_rescue` made in memory, any condition changed by keyword."""

from collections.abc import Sequence
from typing import Any

from builders import make_facts, make_record, make_snapshot

from creditscope.paper.studies.penalty_rescue import STRONG, WEAK
from creditscope.record import Record

KINDS: dict[str, tuple[str, float, bool]] = {
    "early": ("dfa", 0.0, False),
    "dfa": ("dfa", 0.0, False),
    "weak": ("dfa", WEAK, False),
    "strong": ("dfa", STRONG, False),
    "bp": ("bp", 0.0, False),
    "bp strong": ("bp", STRONG, False),
    "frozen dfa": ("dfa", 0.0, True),
    "frozen bp": ("bp", 0.0, True),
}
"""Rule, penalty, frozen."""
SEEDS = (1, 2, 3)
EPOCHS = 30
FRESH = {"fresh_rho": 0.01, "fresh_rho_sd": 0.03, "fresh_descent": 0.02, "fresh_descent_sd": 0.03, "rho_exact": 0.99}
BASE = {"fresh_cos": 0.0, "fresh_sd": 0.03, **FRESH}
ACCURACY = {"dfa": 0.30, "early": 0.30, "weak": 0.32, "strong": 0.36, "bp": 0.58, "bp strong": 0.53}
ACCURACY |= {"frozen dfa": 0.33, "frozen bp": 0.38}
DEEP = {"dfa": 0.0, "early": -0.01, "weak": 0.05, "strong": 0.15}
"""Deep cosine of seed 2."""
GROWN = {"h_rms": (1.0, 1.0, 51.0, 51.0, 51.0)}
FLAT = {"g_norm": (0.1, 0.1, 0.1, 0.1, 1e-6)}
"""What gives alarm: growth (CS001), and the published floor."""


def snapshot(rule: str, epoch: int, *, taps: dict[str, Any] | None = None, **others: Any):
    return make_snapshot(make_facts(rule=rule), epoch=epoch, taps={**BASE, **(taps or {})}, **others)


def make_run(key: str, seed: int, *, epochs=None, taps=None, at=None, accuracy=None, **others: Any) -> Record:
    """One run: cosine (.9, .8, then the deep value), growth and ‖g_L‖ calm; `at` overrides taps by epoch."""
    (rule, penalty, frozen), off = KINDS[key], 0.01 * (seed - 2)
    deep = DEEP.get(key, 1.0) + off
    own = {"cos": (0.9, 0.8, deep, deep, deep), "rho": deep / 2, "descent": abs(deep)} if rule == "dfa" else {}
    epochs = epochs or ((0, 1, 2, 3, 4, 5, EPOCHS) if key == "early" else (0, 10, 20, EPOCHS))
    accuracy = ACCURACY[key] + off / 5 if accuracy is None else accuracy
    found = []
    for epoch in epochs:
        size = {"h_norm": 10.0 * 10 ** (epoch / 10 if key == "dfa" else 0), "g_norm": 0.1 / 10 ** (epoch / 5)}
        size |= {} if key == "dfa" else {"g_norm": 0.1}
        found.append(
            snapshot(rule, epoch, accuracy=accuracy, taps={**own, **size, **(taps or {}), **(at or {}).get(epoch, {})})
        )
    spec = {"rule": rule, "penalty": penalty, "frozen": frozen, "epochs": EPOCHS, "seed": seed}
    spec |= {"tier": "full"} if key == "early" else {}
    return make_record(snapshots=found, **{"net_options": {"depth": 4, "width": 8}, **spec, **others})


def make_study(*, without: Sequence[str] = (), seeds=SEEDS, **changed: dict[str, Any]) -> list[Record]:
    """All conditions; `changed` gives the changes of a condition (spaces are underscores)."""
    found = []
    for key in KINDS:
        if key not in without:
            found += [make_run(key, seed, **changed.get(key.replace(" ", "_"), {})) for seed in seeds]
    return found
