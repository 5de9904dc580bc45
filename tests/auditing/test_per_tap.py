"""Per-tap intervals over seeds against SciPy, and alignment acquired."""

import numpy as np
import pytest
from builders import QUICK, make_facts, make_record, make_snapshot
from scipy import stats

from creditscope.auditing import audit
from creditscope.record import RuleFacts

COS = {1: (0.1, 0.2, 0.3, 0.4, 0.5), 2: (0.2, 0.25, 0.1, 0.4, 0.6), 3: (0.15, 0.3, 0.2, 0.1, 0.7)}
FRESH = {1: 0.02, 2: 0.05, 3: -0.01}


@pytest.fixture(scope="module")
def taps():
    def measures(s: int):
        return {"cos": COS[s], "fresh_cos": FRESH[s], "g_norm": 10.0**-s, "h_rms": (1, s, 2 * s, 2 * s, 2 * s)}

    records = [make_record(seed=s, taps=measures(s)) for s in COS]
    (method,) = audit(records).methods
    return method.per_tap


def test_cosines_and_alignment_acquired_within_each_seed_have_t_intervals_over_seeds(taps):
    for i, tap in enumerate(taps):
        for found, values in ((tap.cos, [COS[s][i] for s in COS]), (tap.acquired, [COS[s][i] - FRESH[s] for s in COS])):
            low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
            assert (found.mean, found.low, found.high) == pytest.approx((np.mean(values), low, high))
            assert (found.n, found.kind, found.over) == (3, "t", "seeds; test set fixed")


def test_sizes_are_averaged_on_a_log_scale(taps):
    assert taps[0].g_norm.mean == pytest.approx(1e-2)  # of 0.1, 0.01 and 0.001
    assert taps[1].growth.mean == pytest.approx(6 ** (1 / 3))  # of 1, 2 and 3
    assert taps[2].growth.mean == pytest.approx(2)
    assert taps[0].growth is None  # no block lies before the stem's tap


def test_the_noise_shown_is_that_of_the_worst_seed():
    records = [make_record(seed=s, taps={"g_noise": noise}) for s, noise in ((1, 1e-7), (2, 0.3), (3, 1e-6))]
    (method,) = audit(records).methods
    assert [tap.g_noise for tap in method.per_tap] == [0.3] * 5


def test_the_probe_before_training_is_that_of_the_first_snapshot():
    facts = make_facts()
    snapshots = [make_snapshot(facts, epoch=e, taps={"probe": p}) for e, p in ((0, 0.2), (1, 0.6))]
    (method,) = audit([make_record(snapshots=snapshots)]).methods
    tap = method.per_tap[2]
    assert (tap.probe.mean, tap.probe_untrained.mean) == (0.6, 0.2)


def test_what_was_not_measured_is_none_and_the_rest_stands():
    (method,) = audit([make_record(taps={**QUICK, "g_norm": 0.0})]).methods
    tap = method.per_tap[0]
    assert (tap.descent, tap.acquired, tap.common, tap.probe, tap.drift) == (None,) * 5
    assert (tap.cos.mean, tap.g_norm) == (0.5, None)  # exactly zero has no geometric mean


def test_a_seed_that_lacks_a_value_is_left_out_and_counted():
    records = [make_record(seed=1), make_record(seed=2, taps={"cos": (None, 0.3, 0.3, 0.3, 0.3)})]
    (method,) = audit(records).methods
    assert [tap.cos.n for tap in method.per_tap] == [1, 2, 2, 2, 2]


def test_bootstrap_is_an_alternative():
    records = [make_record(seed=s, taps={"cos": COS[s]}) for s in COS]
    (method,) = audit(records, interval="bootstrap").methods
    found = method.per_tap[0].cos
    assert (found.kind, found.low, found.high) == ("bootstrap", pytest.approx(0.1), pytest.approx(0.2))
    assert method.accuracy.kind == "t"


STAGE = {1: 0.2, 2: 0.3, 3: 0.1}


def test_the_null_is_that_of_the_mean_and_weights_and_blocks_are_paired_with_their_run():
    sds = {1: 0.03, 2: 0.04, 3: 0.05}
    records = [
        make_record(
            seed=s,
            accuracy=0.6 + 0.1 * s,
            taps={
                "null_sd": sds[s],
                "stage_cos": STAGE[s],
                "stage_null_sd": 2 * sds[s],
                "rewind": (None, 0.5, 0.5, 0.5, 0.5),
                "rewind_refit": (None, 0.55, 0.5, 0.5, 0.5),
                "skip_one": (None, 0.4, 0.5, 0.5, 0.5),
            },
        )
        for s in sds
    ]
    (method,) = audit(records).methods
    tap, null = method.per_tap[1], np.sqrt(np.sum(np.square(list(sds.values())))) / 3
    assert (tap.null_sd, tap.stage_null_sd) == pytest.approx((null, 2 * null))
    low, high = stats.t.interval(0.95, 2, np.mean(list(STAGE.values())), stats.sem(list(STAGE.values())))
    assert (tap.stage_cos.low, tap.stage_cos.high) == pytest.approx((low, high))
    assert (tap.rewind_loss.mean, tap.skip_loss.mean) == pytest.approx((0.8 - 0.55, 0.8 - 0.4))  # norms estimated anew
    assert (method.per_tap[0].rewind_loss, method.per_tap[0].skip_loss) == (None, None)


def test_the_answer_of_a_tap_is_that_of_the_check():
    """The stem is judged alone; exact taps, and rules with another aim, have none."""
    cos = (0.01, 0.5, 0.01, 0.5, 0.5)
    taps = {"cos": cos, "cos_F": cos, "stage_cos": 0.0}
    records = [make_record(rule="block_fa", seed=s, taps=taps) for s in (1, 2, 3)]
    (method,) = audit(records).methods
    assert [tap.answer for tap in method.per_tap] == ["below", "carries", "below", "carries", None]
    other = RuleFacts(name="own", label="own", approximates="target states")
    (method,) = audit([make_record(taps=taps, facts={"rule": other})]).methods
    assert {tap.answer for tap in method.per_tap} == {None}
