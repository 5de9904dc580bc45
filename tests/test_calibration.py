"""CS005 errs at its stated rate: the short version of bench/calibration.py."""

import pytest
import torch
from scipy.stats import binom

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.stats import z_limit
from creditscope.measure.alignment import measure_alignment
from creditscope.measure.nulls import haar_rotation
from creditscope.measure.observation import observe
from creditscope.record import Provenance, Record
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.training import train_run

LEVEL = Thresholds().orientation
SMALL = {"task": "digits", "net_options": {"depth": 3, "width": 16}, "epochs": 3, "eval_rows": 128, "tier": "quick"}


def trained(rule: str) -> Run:
    run = build_run(plan_run(rule=rule, seed=1, **SMALL))
    train_run(run, audit=False)
    run.net.eval()
    return run


def misses(taps: list[tuple[torch.Tensor, torch.Tensor]], rounds: int) -> tuple[int, int]:
    """How many null taps are called informative, of how many."""
    stream, limit, found = torch.Generator().manual_seed(0), z_limit(LEVEL), []
    for a, g in taps:
        credit = torch.stack([a @ haar_rotation(a.shape[1], stream, a.dtype) for _ in range(rounds)])
        found.append(measure_alignment(credit, g.expand_as(credit))["z"] > limit)
    called = torch.cat(found)
    return int(called.sum()), len(called)


@pytest.fixture(scope="module")
def seen():
    run = trained("dfa")
    batch = run.data.snapshot_batch()
    return observe(run.net, run.application.applied, batch.inputs, batch.target, noise=False)


@pytest.mark.parametrize("credit", ["credits", "exact"])
def test_turned_credit_on_real_gradients(seen, credit):
    called, taps = misses(list(zip(getattr(seen, credit), seen.exact, strict=True)), rounds=250)
    assert taps == 1000
    assert binom.sf(called - 1, taps, LEVEL) > 0.001, f"{called} of {taps}"


def test_credit_that_is_not_turned_is_seen(seen):
    z = torch.stack(
        [measure_alignment(g + 0.5 * g.norm() * torch.randn_like(g) / g.numel() ** 0.5, g)["z"] for g in seen.exact]
    )
    assert (z > z_limit(LEVEL)).all()


@pytest.mark.parametrize(("rows", "features"), [(40, 8), (20, 32)])
def test_turned_credit_on_correlated_rows(rows, features):
    stream = torch.Generator().manual_seed(1)
    taps = []
    for _ in range(200):  # fresh rows for every few rotations
        g, a = (torch.randn(rows, features, generator=stream) for _ in range(2))
        taps.append((a + 2 * torch.randn(features, generator=stream), g + 2 * torch.randn(features, generator=stream)))
    called, count = misses(taps, rounds=5)
    assert count == 1000
    assert binom.sf(called - 1, count, LEVEL) > 0.001, f"{called} of {count}"


def test_exact_credit_is_not_judged():
    run = trained("bp")
    provenance = Provenance(status="complete", facts=run.facts)
    (method,) = audit([Record(run.spec, provenance, tuple(snapshot_run(run, run.spec.epochs)))]).methods
    assert {str(f.outcome) for f in method.findings if f.code == "CS005"} == {"not applicable"}
