"""Many tiny runs: what a run costs beside its training, in all workers together.

`python bench/many_runs.py --rounds 3`: the median over rounds of the seconds that 200 runs take, new records each time.
"""

import tempfile
import time

from common import Spread, Table, arguments

from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run

RUNS = 200
TINY = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "batch": 700, "eval_rows": 32, "tier": "quick"}


def main() -> None:
    given = arguments(__doc__, rounds=3)
    table = Table(f"{RUNS} runs of two epochs of two steps, in two workers", "cpu")
    specs = [plan_run(**TINY, seed=seed, epochs=2, snapshot_every=0, noise=False) for seed in range(RUNS)]
    times = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as root:
            began = time.perf_counter()
            run_all(specs, root, slots=2, device="cpu", engine="loop")
            times.append(time.perf_counter() - began)
    table.add(runs=RUNS, seconds=Spread.of(times), ms_a_run=round(1000 * Spread.of(times).median / RUNS, 1))
    table.save(given.json)


if __name__ == "__main__":
    main()
