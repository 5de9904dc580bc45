"""What a snapshot without g_noise costs, in plain BP training steps at equal rows, interleaved in one process.

The BP step against itself is the noise control.
"""

import torch
from common import Table, arguments, interleaved, over, random_rows

from creditscope.measure.observation import observe
from creditscope.measure.snapshot import take_snapshots
from creditscope.train.data import RowData
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run

SIZES = ((40, 128, 128), (40, 128, 1000), (3072, 256, 128), (3072, 512, 128))
"""Inputs, width, rows: mnist1d's batch and snapshot, then the sizes of CIFAR-10."""


def main() -> None:
    given = arguments(__doc__, rounds=40)
    table = Table(f"ResMLP of depth 4: snapshot over BP step at equal rows, {given.rounds} rounds", "cpu")
    for inputs, width, rows in SIZES:
        for rule in ("bp", "fa", "block_fa", "dfa"):
            times = measure(build("bp", inputs, width, rows), build(rule, inputs, width, rows), given.rounds)
            table.add(
                inputs=inputs, width=width, rows=rows, rule=rule,
                ratio=over(times, "snapshot", "step"), control=over(times, "step again", "step"),
            )  # fmt: skip
    table.save(given.json)


def build(rule: str, inputs: int, width: int, rows: int) -> Run:
    spec = plan_run(rule=rule, net_options={"depth": 4, "width": width}, batch=rows)
    return build_run(spec, random_rows(inputs, rows))


def measure(reference: Run, run: Run, rounds: int) -> dict[str, list[float]]:
    assert isinstance(run.data, RowData)
    batch = run.data.train_batch(torch.arange(len(run.data.y_train)))

    def step() -> None:
        reference.train_step(batch)

    def snapshot() -> None:
        seen = observe(run.net, run.application.applied, batch.inputs, batch.target, noise=False)
        take_snapshots(seen, run.facts, epoch=0)

    return interleaved({"step": step, "snapshot": snapshot, "step again": step}, rounds, "cpu")


if __name__ == "__main__":
    main()
