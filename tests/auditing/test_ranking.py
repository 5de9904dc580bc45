"""Whether cosine and descent rank the methods of one setting alike."""

import pytest
from builders import QUICK, make_record

from creditscope.auditing import audit


def runs(rule: str, cos: float, descent: float, *, spread: float = 0.01, **spec):
    """One method; both numbers differ a little by seed."""
    return [
        make_record(rule=rule, seed=s, taps={"cos": cos + spread * s, "descent": descent + spread * s * s}, **spec)
        for s in (1, 2, 3)
    ]


def lone(rule: str, cosines: tuple[float, ...], descent: float):
    return [make_record(rule=rule, seed=s, taps={"cos": c, "descent": descent}) for s, c in enumerate(cosines, start=1)]


STEADY = lone("fa", (0.5,) * 3, 0.3)
OPPOSED = [*runs("fa", 0.5, 0.1), *runs("dfa", 0.1, 0.4)]


@pytest.mark.parametrize(
    ("records", "notes"),
    [
        ([*runs("fa", 0.5, 0.4), *runs("dfa", 0.1, 0.1)], 0),  # the same order
        (OPPOSED, 1),
        ([*STEADY, *lone("dfa", (0.30, 0.70, 0.49), 0.4)], 0),  # within the spread
        ([*STEADY, *lone("dfa", (0.30, 0.31, 0.32), 0.4)], 1),
        ([*runs("fa", 0.5, 0.1), *runs("dfa", 0.1, 0.4, lr=0.5)], 0),  # of two settings
        ([r for r in OPPOSED if r.spec.seed == 1], 0),  # one seed is never resolved
        ([*runs("bp", 1.0, 0.1), *runs("dfa", 0.1, 0.4)], 0),  # exact credit
        ([*(make_record(rule="fa", seed=s, taps=QUICK) for s in (1, 2, 3)), *runs("dfa", 0.1, 0.4)], 0),
    ],
)
def test_another_order_is_noted_where_seeds_resolve_it(records, notes):
    assert len(audit(records).notes) == notes


def test_stem_and_exact_taps_do_not_count():
    """With either of them block FA would be above DFA by both."""
    told = [
        make_record(rule="block_fa", seed=s, taps={"cos": (0.9, *[0.1 + 0.01 * s] * 3, 1.0), "descent": 0.4 + 0.01 * s})
        for s in (1, 2, 3)
    ]
    (note,) = audit([*told, *runs("dfa", 0.2, 0.1, spread=0.001)]).notes
    assert "DFA is above" in note


def test_the_note_has_numbers_and_is_shown_with_the_audit_and_the_decision_table():
    found = audit(OPPOSED)
    (note,) = found.notes
    assert [part in note for part in ("FA is above DFA", "n = 3", "0.400", "−0.300")] == [True] * 4
    for text in (str(found), str(found.decisions())):
        assert f"note: {note}" in " ".join(text.split())
