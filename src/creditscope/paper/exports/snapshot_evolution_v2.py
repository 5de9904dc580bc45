"""ResMLP with a terminal LayerNorm over training, seed 42: results/snapshot_evolution_v2, from `snapshot_resmlp`."""

from collections.abc import Sequence

from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import RESMLP as LAYOUT
from creditscope.paper.exports._logs import choose_runs, export_logs
from creditscope.paper.studies.snapshot_resmlp import snapshot_resmlp
from creditscope.record import Record

SEED = 42
PATH = f"results/snapshot_evolution_v2/snapshot_evolution_s{SEED}.json"


@register_export("snapshot_evolution_v2")
def snapshot_evolution_v2(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """BP and DFA, every snapshot; DFA's is also the unpenalised log beside `dfa_residual_penalty`."""
    study = snapshot_resmlp(scale)
    net = next(w["net_options"] for w in study.runs if w["net_options"]["terminal_norm"])
    return export_logs(records, {PATH: choose_runs(study, "bp", "dfa", seed=SEED, net_options=net)}, LAYOUT)
