"""ResMLP without a terminal LayerNorm over training: results/snapshot_no_outln_v1.

BP and DFA come from study `snapshot_resmlp`, FA from `cross_architecture`.
"""

from collections.abc import Sequence

from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import RESMLP as LAYOUT
from creditscope.paper.exports._logs import choose_runs, export_logs
from creditscope.paper.studies._recipes import SEEDS
from creditscope.paper.studies.cross_architecture import cross_architecture
from creditscope.paper.studies.snapshot_resmlp import snapshot_resmlp
from creditscope.record import Record

FOLDER = "results/snapshot_no_outln_v1"


@register_export("snapshot_no_outln_v1")
def snapshot_no_outln_v1(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """The published seeds of BP and DFA, and FA on the first of them."""
    study, across = snapshot_resmlp(scale), cross_architecture(scale)
    net = {"net_options": next(w["net_options"] for w in study.runs if not w["net_options"]["terminal_norm"])}
    seeds = [seed for seed in SEEDS if any(w["seed"] == seed for w in study.runs)]
    files = {f"{FOLDER}/snapshot_noLN_s{s}.json": choose_runs(study, "bp", "dfa", seed=s, **net) for s in seeds}
    alone = choose_runs(across, "fa", seed=SEEDS[0], **net)
    files[f"{FOLDER}/snapshot_fa_canonical_noln_s{SEEDS[0]}.json"] = alone
    return export_logs(records, files, LAYOUT)
