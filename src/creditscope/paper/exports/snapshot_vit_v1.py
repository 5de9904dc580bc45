"""ViT-Mini over training, on the class token: results/snapshot_vit_v1.

BP and DFA come from study `snapshot_vit`, every seed on record; FA comes from `cross_architecture`.
"""

from collections.abc import Sequence
from functools import cache
from typing import NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import Config, Entry, Gamma, Gradients, Layout, States, choose_runs, export_logs
from creditscope.paper.studies._recipes import SEEDS
from creditscope.paper.studies._study import fits
from creditscope.paper.studies.cross_architecture import cross_architecture
from creditscope.paper.studies.snapshot_vit import snapshot_vit
from creditscope.record import Record

FOLDER = "results/snapshot_vit_v1"
LAYOUT = Layout("hidden_norms_cls", "bp_grad_per_sample_l2_med", class_token=True)


class ViTEntry(Entry):
    """A snapshot; sizes are those of the class token."""

    hidden_norms_cls: States
    bp_grad_per_sample_l2_med: Gradients


class ViTGammaEntry(ViTEntry, Gamma):
    """A snapshot under DFA; Γ is over all tokens of a sample."""


class ViTPair(TypedDict):
    """BP and DFA on one seed."""

    bp_log: list[ViTEntry]
    dfa_log: list[ViTGammaEntry]
    config: NotRequired[Config]


class ViTAlone(TypedDict):
    """FA on one seed."""

    fa_log: list[ViTEntry]
    config: NotRequired[Config]


@cache
def shape() -> TypeAdapter[ViTPair | ViTAlone]:
    """What a file holds: BP and DFA, or FA."""
    return TypeAdapter(ViTPair | ViTAlone)


@register_export("snapshot_vit_v1")
def snapshot_vit_v1(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """BP and DFA of the study's seeds and of every other one on record; FA on seed 42."""
    own = snapshot_vit(scale)
    seeds = dict.fromkeys(wanted["seed"] for wanted in own.runs)
    seeds |= dict.fromkeys(
        r.spec.seed for r in records if r.spec and any(fits(r, {**w, "seed": r.spec.seed}) for w in own.runs)
    )
    study, pair = snapshot_vit(scale, seeds=tuple(seeds)), {"bp_log": "bp", "dfa_log": "dfa"}
    files = {f"{FOLDER}/snapshot_vit_s{seed}.json": choose_runs(study, pair, seed=seed) for seed in seeds}
    alone = choose_runs(cross_architecture(scale), {"fa_log": "fa"}, seed=SEEDS[0], net="vit")
    files[f"{FOLDER}/snapshot_fa_canonical_s{SEEDS[0]}.json"] = alone
    return export_logs(records, files, layout=LAYOUT, shape=shape())
