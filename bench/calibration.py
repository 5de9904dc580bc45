"""How often CS005 calls a random orientation informative, against the level it states.

Null taps: credit turned by one Haar rotation, shared by all rows of a tap, on the real gradients of a small trained
net and on synthetic ones that are correlated over rows. A tap is called informative if its z is above the one-sided
point of the level, before Holm's correction; after it, at most a share of nets (of five taps) as large as the level may
have any such tap. `excess_p` is the binomial probability of so many or more at the stated level. Beside it, what a
t-test over rows would say of the same taps. `--rounds` is the number of rotations per tap.
"""

import sys
from collections.abc import Iterator

import torch
from common import Table, arguments
from scipy.stats import binom, t
from torch import Tensor

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.stats import holm, z_limit
from creditscope.measure.alignment import measure_alignment
from creditscope.measure.nulls import haar_rotation
from creditscope.measure.numerics import unit_rows
from creditscope.measure.observation import Observation, observe
from creditscope.record import Provenance, Record
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.training import train_run

TAPS, CLASSES = 5, 10
SMALL = {"net_options": {"depth": TAPS - 1, "width": 32}, "epochs": 10, "eval_rows": 512, "tier": "quick"}
SURPRISE = 0.01
"""Chance of failing although it is calibrated, over all counts of the table."""
Taps = list[tuple[Tensor, Tensor]]
"""Credit and gradient of every tap of one net, each (rows, features)."""


def trained(rule: str) -> Run:
    run = build_run(plan_run(rule=rule, seed=1, **SMALL))
    train_run(run, audit=False)
    run.net.eval()
    return run


def observed(run: Run) -> Observation:
    batch = run.data.snapshot_batch()
    return observe(run.net, run.application.applied, batch.inputs, batch.target, noise=False)


def common_direction(stream: torch.Generator, rows: int, features: int) -> Taps:
    """Rows that share a direction, in credit and in gradient."""
    taps = []
    for _ in range(TAPS):
        g, a = (torch.randn(rows, features, generator=stream) for _ in range(2))
        taps.append((a + 2 * torch.randn(features, generator=stream), g + 2 * torch.randn(features, generator=stream)))
    return taps


def few_classes(stream: torch.Generator, rows: int, features: int) -> Taps:
    """Credit B e and gradient W e with the same errors e of few classes: low rank, as under DFA."""
    target = torch.randint(CLASSES, (rows,), generator=stream)
    logits = torch.randn(rows, CLASSES, generator=stream) + 2 * torch.nn.functional.one_hot(target, CLASSES)
    error = logits.softmax(1) - torch.nn.functional.one_hot(target, CLASSES)
    matrices = torch.randn(TAPS, 2, CLASSES, features, generator=stream)
    return [(error @ b, error @ w) for b, w in matrices]


def turned(taps: Taps, stream: torch.Generator) -> list[dict[str, Tensor]]:
    """z and the rows' cosines of every tap, with the credit turned."""
    found = []
    for a, g in taps:
        credit = a @ haar_rotation(a.shape[1], stream, a.dtype)
        cosines = (unit_rows(credit)[0] * unit_rows(g)[0]).sum(1)
        found.append(
            {"z": measure_alignment(credit, g)["z"], "t": cosines.mean() / cosines.std() * len(cosines) ** 0.5}
        )
    return found


def cases(rounds: int) -> Iterator[tuple[str, int, int, list[list[dict[str, Tensor]]]]]:
    """Name, rows, features, and the null nets of each case."""
    stream = torch.Generator().manual_seed(0)
    seen = observed(trained("dfa"))
    rows, features = seen.exact[0].shape
    for name, credits in (("DFA's credit", seen.credits), ("the gradient itself", seen.exact)):
        taps = list(zip(credits, seen.exact, strict=True))
        yield f"trained net, {name}", rows, features, [turned(taps, stream) for _ in range(rounds)]
    for name, make in (("synthetic, a common direction", common_direction), ("synthetic, ten classes", few_classes)):
        for rows, features in ((128, 8), (128, 64), (512, 128)):
            yield name, rows, features, [turned(make(stream, rows, features), stream) for _ in range(rounds)]


def exact_outcome() -> str:
    """What CS005 says of a run that is handed the gradient itself."""
    run = trained("bp")
    provenance = Provenance(status="complete", facts=run.facts)
    record = Record(run.spec, provenance, tuple(snapshot_run(run, run.spec.epochs)))
    return next(str(f.outcome) for f in audit([record]).methods[0].findings if f.code == "CS005")


def main() -> None:
    given = arguments(__doc__, rounds=400)
    level = Thresholds().orientation
    limit = z_limit(level)
    table = Table(f"CS005 on null taps: called informative at a level of {level:g} (z > {limit:.2f})", "cpu")
    chances = []
    for name, rows, features, nets in cases(given.rounds):
        z, per_row = (torch.tensor([[float(tap[key]) for tap in net] for net in nets]) for key in ("z", "t"))
        above, count = int((z > limit).sum()), z.numel()
        families = sum(any(holm(net, level=level)) for net in z.tolist())
        chances += [float(binom.sf(above - 1, count, level)), float(binom.sf(families - 1, len(nets), level))]
        alarms = float((per_row > float(t.ppf(1 - level, rows - 1))).double().mean())
        table.add(
            case=name.ljust(33),
            rows=rows,
            features=features,
            taps=count,
            informative=above,
            rate=f"{above / count:.4f}",
            excess_p=f"{chances[-2]:.3f}",
            nets_after_holm=f"{families}/{len(nets)}",
            t_test_over_rows=f"{alarms:.2f}",
        )
    exact = exact_outcome()
    table.add(case="exact credit (BP)".ljust(33), outcome=exact)
    table.save(given.json)
    if min(chances) < SURPRISE / len(chances) or exact != "not applicable":
        sys.exit(f"CS005 is not calibrated: smallest binomial p {min(chances):.2g}, exact credit {exact}")


if __name__ == "__main__":
    main()
