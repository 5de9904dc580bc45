"""One trained BP net in other units: its stream multiplied by c = 1 … 10⁸, which changes nothing it computes."""

from collections.abc import Sequence
from pathlib import Path

from creditscope.paper.studies import Study, choose_scale, register_study
from creditscope.paper.studies._derived import derive_records
from creditscope.paper.studies._recipes import DEMO, FROZEN, PAPER, SEEDS
from creditscope.record import Record

FACTORS = tuple(10.0**k for k in range(9))
"""c, by which the stream is multiplied after training."""
SCALES = {
    "demo": DEMO,
    "paper": PAPER,
    "test": {
        **DEMO,
        "net_options": {"depth": 2, "width": 16, "terminal_norm": True},
        "epochs": 2,
        "eval_rows": 128,
        "tier": "quick",
    },
}


@register_study("rescaling")
def rescaling(scale: str = "demo", *, seeds: Sequence[int] = SEEDS) -> Study:
    """BP over seeds and its frozen baseline (both are runs of other studies); the rescaled nets are derived from it."""
    recipe = {**choose_scale(SCALES, scale), "rule": "bp"}
    trained = [{**recipe, "seed": seed} for seed in seeds]
    frozen = [{**recipe, **FROZEN, "seed": seed} for seed in seeds]
    return Study("rescaling", (*trained, *frozen), derive=measure_rescaled)


def measure_rescaled(
    records: Sequence[Record], root: Path, *, measure: bool, problems: list[str], device: str = "auto"
) -> list[Record]:
    """Every trained run at every c; measured where it is not on disk."""

    def measure_now(record: Record, factors: Sequence[float]):
        from creditscope.paper.studies._rescale import measure_at

        return measure_at(record, factors, device=device)

    trained = [r for r in records if r.spec and not r.spec.frozen and r.provenance.status == "complete"]
    how = measure_now if measure else None
    return derive_records("rescaling", trained, root, FACTORS, measure=how, problems=problems)
