"""A step of many seeds stacked, against a plain eager PyTorch loop over the seeds (one seed's step, times the seeds).

Random data of the tasks' shapes; whole epochs are timed, with the drawing of the next epoch's order. The eager step
measured twice is the noise control.
"""

from cases import GCN, MIDDLE, RESMLP, SMALL, VIT, Case, eager_step
from common import Spread, Table, arguments, interleaved, over

from creditscope.tasks import AnyTask

SEEDS = (1, 3, 20, 64)
RULES = ("fa", "block_fa", "dfa")
CUDA = ((RESMLP, SEEDS), (GCN, SEEDS), (VIT, (1, 3, 20)))
CPU = ((SMALL, SEEDS), (MIDDLE, (1, 3, 20)), (GCN, (1, 3, 20)))


def main() -> None:
    given = arguments(__doc__, rounds=9)
    on_cuda = given.device.startswith("cuda")
    table = Table(f"Stacked step against a plain eager loop over seeds, {given.rounds} rounds", given.device)
    for case, counts in CUDA if on_cuda else CPU:
        task = case.task()
        for seeds in counts:
            compare(table, case, task, seeds, "bp", given)
        for rule in RULES:
            compare(table, case, task, 3 if case is VIT else 20, rule, given)
    table.save(given.json)


def compare(table: Table, case: Case, task: AnyTask, seeds: int, rule: str, given) -> None:
    run, eager = case.stack(seeds, given.device, rule, task), eager_step(case, task, given.device)
    repeats = 20 if given.device.startswith("cuda") else 2
    epoch = iter(range(1000))

    def stacked() -> None:
        for _ in range(repeats if run.data.steps == 1 else 1):
            run.train_epoch(next(epoch), keep_last=False)

    def plain() -> None:
        for _ in range(repeats):
            eager()

    times = interleaved({"eager": plain, "stacked": stacked, "again": plain}, given.rounds, given.device)
    steps = repeats if run.data.steps == 1 else run.data.steps
    milliseconds = Spread.of([1e3 * t / steps for t in times["stacked"]])
    eager_ms = Spread.of([1e3 * t / repeats for t in times["eager"]])
    faster = Spread.of(
        [seeds * (a / repeats) / (b / steps) for a, b in zip(times["eager"], times["stacked"], strict=True)]
    )
    table.add(
        net=case.name, rule=rule, seeds=seeds, engine=run.engine, stacked_ms=milliseconds, eager_ms=eager_ms,
        faster=faster, control=over(times, "again", "eager"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
