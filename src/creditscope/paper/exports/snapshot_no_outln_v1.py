"""ResMLP without a terminal LayerNorm over training: results/snapshot_no_outln_v1.

BP and DFA come from study `snapshot_resmlp`, FA from `cross_architecture`.
"""

from collections.abc import Sequence
from functools import cache
from typing import NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import RESMLP, Config, ResMLPEntry, ResMLPPair, choose_runs, export_logs
from creditscope.paper.studies._recipes import SEEDS
from creditscope.paper.studies.cross_architecture import cross_architecture
from creditscope.paper.studies.snapshot_resmlp import snapshot_resmlp
from creditscope.record import Record

FOLDER = "results/snapshot_no_outln_v1"


class ResMLPAlone(TypedDict):
    """FA on one seed."""

    fa_log: list[ResMLPEntry]
    config: NotRequired[Config]


@cache
def shape() -> TypeAdapter[ResMLPPair | ResMLPAlone]:
    """What a file holds: BP and DFA, or FA."""
    return TypeAdapter(ResMLPPair | ResMLPAlone)


@register_export("snapshot_no_outln_v1")
def snapshot_no_outln_v1(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """The published seeds of BP and DFA, and FA on the first of them."""
    study, across = snapshot_resmlp(scale), cross_architecture(scale)
    net = {"net_options": next(w["net_options"] for w in study.runs if not w["net_options"]["terminal_norm"])}
    seeds = [seed for seed in SEEDS if any(w["seed"] == seed for w in study.runs)]
    pair = {"bp_log": "bp", "dfa_log": "dfa"}
    files = {f"{FOLDER}/snapshot_noLN_s{seed}.json": choose_runs(study, pair, seed=seed, **net) for seed in seeds}
    alone = choose_runs(across, {"fa_log": "fa"}, seed=SEEDS[0], **net)
    files[f"{FOLDER}/snapshot_fa_canonical_noln_s{SEEDS[0]}.json"] = alone
    return export_logs(records, files, layout=RESMLP, shape=shape())
