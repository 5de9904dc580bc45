"""StudentNet on labels of a teacher over training, seed 42: results/snapshot_synth_v1, from `cross_architecture`."""

from collections.abc import Sequence
from functools import cache
from typing import NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import Config, Entry, Gamma, Gradients, Layout, States, choose_runs, export_logs
from creditscope.paper.studies.cross_architecture import cross_architecture
from creditscope.record import Record

SEED = 42
FOLDER = "results/snapshot_synth_v1"
LAYOUT = Layout("hidden_norms", "bp_grad_per_sample_l2_med")


class StudentEntry(Entry):
    """A snapshot."""

    hidden_norms: States
    bp_grad_per_sample_l2_med: Gradients


class StudentGammaEntry(StudentEntry, Gamma):
    """A snapshot under DFA."""


class StudentPair(TypedDict):
    """BP and DFA on one seed."""

    bp_log: list[StudentEntry]
    dfa_log: list[StudentGammaEntry]
    config: NotRequired[Config]


class StudentAlone(TypedDict):
    """FA on one seed."""

    fa_log: list[StudentEntry]
    config: NotRequired[Config]


@cache
def shape() -> TypeAdapter[StudentPair | StudentAlone]:
    """What a file holds: BP and DFA, or FA."""
    return TypeAdapter(StudentPair | StudentAlone)


@register_export("snapshot_synth_v1")
def snapshot_synth_v1(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """BP and DFA in one file, FA in another."""
    study = cross_architecture(scale)
    pair, alone = (
        choose_runs(study, rules, seed=SEED, net="student")
        for rules in ({"bp_log": "bp", "dfa_log": "dfa"}, {"fa_log": "fa"})
    )
    files = {
        f"{FOLDER}/snapshot_synth_a1.0_L4_s{SEED}.json": pair,
        f"{FOLDER}/snapshot_fa_canonical_s{SEED}.json": alone,
    }
    return export_logs(records, files, layout=LAYOUT, shape=shape())
