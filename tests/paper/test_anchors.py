"""Published anchors of the league: inside or outside by SciPy's prediction interval, claims seed by seed."""

import numpy as np
import pytest
from paper_runs import run_of
from scipy import stats

from creditscope.errors import CreditscopeError
from creditscope.paper.predictions.outcomes import BLOCKS, Held
from creditscope.paper.published.anchors import hold_anchor, make_anchor, read_anchors

ANCHORS = {anchor.published.id: anchor for anchor in read_anchors()}


def block_of(name: str, **accuracies: float) -> Held:
    """Its runs by rule, seeds a point and two apart."""
    found = []
    for i, wanted in enumerate(BLOCKS[name].plan()):
        own = accuracies.get(wanted["rule"], 0.5)
        options = wanted.get("rule_options", {})
        accuracy = own + 0.01 * (wanted["seed"] % 3) - 0.2 * (not options.get("centred", True)) + 1e-6 * i
        found.append(run_of(wanted, accuracy=accuracy))
    return Held(found)


@pytest.mark.parametrize("name", ANCHORS)
def test_its_rows_are_asked_for(name):
    anchor = ANCHORS[name]
    assert {*anchor.rows} <= {row for own in BLOCKS[anchor.block].all_rows for row in own.names()}
    assert anchor.published.kind == ("claim" if len(anchor.rows) > 1 else "value")


@pytest.mark.parametrize(("accuracy", "inside"), [(0.52, True), (0.60, False), (0.30, False)])
def test_inside_is_scipys_prediction_interval(accuracy, inside):
    anchor = ANCHORS["pepita"]
    found = hold_anchor(block_of("PEPITA", pepita=accuracy), anchor)
    values = np.array([*found.values.by_seed.values()])
    reach = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) * np.sqrt(1 / len(values) + 1)
    assert found.inside == inside == (abs(values.mean() - 0.5258) <= reach + 0.00005)
    assert (found.low, found.high) == (pytest.approx(values.mean() - reach), pytest.approx(values.mean() + reach))


def test_a_claim_holds_if_every_seed_bears_it_out():
    held = block_of("nudging", ep=0.6)
    found = hold_anchor(held, ANCHORS["nudging"])
    assert (found.inside, sum(found.values.numbers), found.n) == (True, 5, 5)
    assert hold_anchor(block_of("local", local=0.7, bp=0.6), ANCHORS["local-pred"]).inside
    seeds = BLOCKS["local"].seeds
    spoilt = [
        run_of(w, accuracy=0.9 if (w["rule"], w["seed"]) == ("bp", seeds[0]) else {"local": 0.7}.get(w["rule"], 0.6))
        for w in BLOCKS["local"].plan()
    ]
    found = hold_anchor(Held(spoilt), ANCHORS["local-pred"])
    assert (found.inside, sum(found.values.numbers)) == (False, len(seeds) - 1)


def test_without_all_its_runs_it_is_open():
    lost = [r for r in block_of("PEPITA").records if not (r.spec.rule == "pepita" and r.spec.seed == 42)]
    assert hold_anchor(Held(lost), ANCHORS["pepita"]) is None


def test_an_entry_that_cannot_be_used_is_named():
    entry = {"id": "x", "source": "", "quantity": "", "said": "0.5", "block": "A", "rows": ["bp"]}
    with pytest.raises(CreditscopeError, match=r"Anchor 'x' .*no read"):
        make_anchor(entry)


def test_of_a_published_sd_the_interval_is_welchs():
    anchor = ANCHORS["audit-sb"]
    found = hold_anchor(block_of("audit", state_bridge=0.2), anchor)
    ours, theirs = found.values.numbers, stats.t.rvs(5, size=3, random_state=0)
    theirs = 0.205 + 0.039 * (theirs - theirs.mean()) / theirs.std(ddof=1)
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    reach = (interval.high - interval.low) / 2
    assert (found.low, found.high) == (pytest.approx(np.mean(ours) - reach), pytest.approx(np.mean(ours) + reach))
