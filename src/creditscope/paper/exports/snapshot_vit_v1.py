"""ViT-Mini over training, on the class token: results/snapshot_vit_v1.

BP and DFA come from study `snapshot_vit`, every seed on record; FA comes from `cross_architecture`.
"""

from collections.abc import Sequence

from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import Layout, choose_runs, export_logs
from creditscope.paper.studies import fits
from creditscope.paper.studies._recipes import SEEDS
from creditscope.paper.studies.cross_architecture import cross_architecture
from creditscope.paper.studies.snapshot_vit import snapshot_vit
from creditscope.record import Record

FOLDER = "results/snapshot_vit_v1"
LAYOUT = Layout("ViT", "hidden_norms_cls", "bp_grad_per_sample_l2_med", class_token=True)


@register_export("snapshot_vit_v1")
def snapshot_vit_v1(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """BP and DFA of the study's seeds and of every other one on record; FA on seed 42."""
    own = snapshot_vit(scale).runs
    seeds = dict.fromkeys(wanted["seed"] for wanted in own)
    others = [r for r in records if r.spec and any(fits(r, {**w, "seed": r.spec.seed}) for w in own)]
    seeds |= dict.fromkeys(r.spec.seed for r in others if r.spec)
    study = snapshot_vit(scale, seeds=tuple(seeds))
    files = {f"{FOLDER}/snapshot_vit_s{seed}.json": choose_runs(study, "bp", "dfa", seed=seed) for seed in seeds}
    alone = choose_runs(cross_architecture(scale), "fa", seed=SEEDS[0], net="vit")
    files[f"{FOLDER}/snapshot_fa_canonical_s{SEEDS[0]}.json"] = alone
    return export_logs(records, files, LAYOUT)
