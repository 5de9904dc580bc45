"""Where a run is read early."""

import pytest
from builders import make_facts, make_record, make_snapshot

from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GROWTH
from creditscope.paper.studies.penalty_rescue import find_early

GROWN = {"h_rms": (1.0, 1.0, 51.0, 51.0, 51.0)}
FLAT = {"g_norm": (0.1, 0.1, 0.1, 0.1, 1e-6)}
LIMITS = {"h_rms": (1.0, *[PUBLISHED_GROWTH] * 4), "g_norm": PUBLISHED_FLOOR}
"""Just not an alarm."""


@pytest.mark.parametrize(
    ("alarms", "epochs", "read", "fired"),
    [
        ({}, (0, 1, 2, 3, 4, 5, 30), 5, None),
        ({}, (0, 1, 2, 3), 3, None),
        ({30: GROWN}, (0, 1, 5, 30), 5, None),
        ({3: GROWN}, (0, 1, 2, 3, 4, 5), 2, 3),
        ({3: FLAT}, (0, 1, 2, 3, 4, 5), 2, 3),
        ({4: FLAT, 2: GROWN}, (0, 1, 2, 3, 4, 5), 1, 2),
        ({5: FLAT}, (0, 2, 5), 2, 5),
        ({1: GROWN}, (0, 1, 2), 0, 1),
        ({0: GROWN, 1: GROWN}, (0, 1, 2), 0, 0),
        ({3: LIMITS}, (0, 1, 2, 3, 4, 5), 5, None),
    ],
)
def test_the_last_snapshot_before_growth_or_the_floor(alarms, epochs, read, fired):
    facts = make_facts()
    snapshots = [make_snapshot(facts, epoch=e, taps=alarms.get(e, {"g_norm": 0.1})) for e in epochs]
    found = find_early(make_record(epochs=30, snapshots=snapshots))
    assert (found.snapshot.epoch, found.fired) == (read, fired)
