"""The battery: what each tier fills, on every net and engine, and that nothing is left on the model."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.measure import battery, rho
from creditscope.measure.battery import INSTRUMENTS, instruments_due
from creditscope.record import Snapshot, TapMeasures, WeightMeasures
from creditscope.tasks import ImageSettings, Task
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.stacked import stack_runs
from creditscope.train.training import train_run

TINY = {"task": "digits", "net_options": {"depth": 2, "width": 16}, "epochs": 2, "eval_rows": 300}
GRAPH = {"task": "sbm", "task_options": {"nodes": 200}, "net": "gcn", "net_options": {"depth": 3, "width": 8}}
CHEAP = {"common", "common_a", "drift", "permuted_cos", "cos_input", "stage_cos", "stage_null_sd"}
DEAR = {"rho", "rho_exact", "probe", "skip_one", "fresh_cos", "fresh_sd", "fresh_rho", "fresh_rho_sd"}
LATE = {"descent", "descent_null", "descent_null_sd", "descent_stage", "fresh_descent", "fresh_descent_sd"}
LAST = {"rewind"}
NEW = CHEAP | DEAR | LATE
OWN_DRAWS = {"beta", "beta_se", "draw_noise"}
"""Of rules that draw noise in every step."""
OTHER_AIM = {"descent_stage_null", "descent_stage_null_sd"}
"""Of rules that do not aim at the gradient."""


def filled(snapshot: Snapshot) -> set[str]:
    return {name for name in NEW | LAST | {"rewind_refit"} if getattr(snapshot.taps, name)}


def images() -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(48, 3, 8, 8), dtype=np.uint8), rng.integers(4, size=48)
    return Task("toy", x, y, x, y, 4, ImageSettings(mean=(0.5,) * 3, std=(0.2,) * 3))


@pytest.fixture
def few_directions(monkeypatch):
    monkeypatch.setattr(rho, "JOINT_DIRECTIONS", 128)


def test_every_instrument_names_fields_of_the_record():
    series = {"taps": {f.name for f in fields(TapMeasures)}, "weights": {f.name for f in fields(WeightMeasures)}}
    for instrument in INSTRUMENTS:
        assert set(instrument.fields) <= series[instrument.of]
    named = {name for i in INSTRUMENTS if i.of == "taps" for name in i.fields}
    assert named == NEW | LAST | OWN_DRAWS | OTHER_AIM | {"rewind_refit"}


@pytest.mark.parametrize(
    ("tier", "ends", "last", "costs"),
    [
        ("quick", False, False, set()),
        ("quick", True, False, set()),
        ("quick", True, True, {"cheap", "last"}),
        ("standard", False, False, {"cheap"}),
        ("standard", False, True, {"cheap", "last"}),
        ("standard", True, False, {"cheap", "dear"}),
        ("standard", True, True, {"cheap", "dear", "late", "last"}),
        ("full", False, False, {"cheap", "dear", "late"}),
        ("full", True, True, {"cheap", "dear", "late", "last"}),
    ],
)
def test_what_is_due_goes_by_cost(tier, ends, last, costs):
    assert instruments_due(tier, ends=ends, last=last) == [i for i in INSTRUMENTS if i.cost in costs]
    assert {i.name for i in INSTRUMENTS if i.cost == "last"} == {"rewind"}


@pytest.mark.parametrize(
    ("tier", "first", "between", "last"),
    [
        ("quick", set(), set(), CHEAP | LAST),
        ("standard", CHEAP | DEAR, CHEAP, NEW | LAST),
        ("full", NEW, NEW, NEW | LAST),
    ],
)
def test_every_tier_fills_what_it_promises(tier, first, between, last):
    taken = []
    train_run(build_run(plan_run(rule="dfa", tier=tier, **TINY)), on_snapshots=taken.extend)
    assert [filled(s) for s in taken] == [first, between, last]
    assert [s.untrained for s in taken] == [True, False, False]
    assert [s.taps.g_noise[0] is None for s in taken] == [tier == "quick", tier == "quick", False]
    for snapshot in taken:
        assert snapshot.notes == ()
