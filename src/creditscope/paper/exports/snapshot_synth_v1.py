"""StudentNet on labels of a teacher over training, seed 42: results/snapshot_synth_v1, from `cross_architecture`."""

from collections.abc import Sequence

from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import Layout, choose_runs, export_logs
from creditscope.paper.studies.cross_architecture import cross_architecture
from creditscope.record import Record

SEED = 42
FOLDER = "results/snapshot_synth_v1"
LAYOUT = Layout("Student", "hidden_norms", "bp_grad_per_sample_l2_med")


@register_export("snapshot_synth_v1")
def snapshot_synth_v1(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """BP and DFA in one file, FA in another."""
    study = cross_architecture(scale)
    pair, alone = (choose_runs(study, *rules, seed=SEED, net="student") for rules in (("bp", "dfa"), ("fa",)))
    files = {f"{FOLDER}/snapshot_synth_a1.0_L4_s{SEED}.json": pair}
    files[f"{FOLDER}/snapshot_fa_canonical_s{SEED}.json"] = alone
    return export_logs(records, files, LAYOUT)
