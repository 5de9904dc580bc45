"""Whether cosine and descent rank the methods of one setting alike."""

from builders import QUICK, make_record

from creditscope.auditing import audit


def runs(rule: str, cos: float, descent: float, *, spread: float = 0.01, seeds=(1, 2, 3), **spec):
    """One method; both numbers differ a little by seed."""
    return [
        make_record(rule=rule, seed=s, taps={"cos": cos + spread * s, "descent": descent + spread * s * s}, **spec)
        for s in seeds
    ]


def test_the_same_order_is_not_worth_a_note():
    assert audit([*runs("fa", 0.5, 0.4), *runs("dfa", 0.1, 0.1)]).notes == ()


def test_another_order_is_noted_with_what_the_seeds_say():
    (note,) = audit([*runs("fa", 0.5, 0.1), *runs("dfa", 0.1, 0.4)]).notes
    assert [part in note for part in ("FA is above DFA", "n = 3", "0.400", "−0.300")] == [True] * 4


def test_a_swap_within_the_spread_is_not():
    close = [make_record(seed=s, taps={"cos": c, "descent": 0.4}) for s, c in ((1, 0.30), (2, 0.70), (3, 0.49))]
    assert audit([*runs("fa", 0.5, 0.3, spread=0.0), *close]).notes == ()
    clear = [make_record(seed=s, taps={"cos": c, "descent": 0.4}) for s, c in ((1, 0.30), (2, 0.31), (3, 0.32))]
    assert len(audit([*runs("fa", 0.5, 0.3, spread=0.0), *clear]).notes) == 1


def test_settings_are_not_compared():
    assert audit([*runs("fa", 0.5, 0.1), *runs("dfa", 0.1, 0.4, lr=0.5)]).notes == ()


def test_one_seed_is_never_resolved():
    assert audit([*runs("fa", 0.5, 0.1, seeds=(1,)), *runs("dfa", 0.1, 0.4, seeds=(1,))]).notes == ()


def test_exact_credit_and_missing_descent_are_left_out():
    assert audit([*runs("bp", 1.0, 0.1), *runs("dfa", 0.1, 0.4)]).notes == ()
    unmeasured = [make_record(rule="fa", seed=s, taps=QUICK) for s in (1, 2, 3)]
    assert audit([*unmeasured, *runs("dfa", 0.1, 0.4)]).notes == ()


def test_stem_and_exact_taps_do_not_count():
    """With either of them block FA would be above DFA by both."""
    told = [
        make_record(rule="block_fa", seed=s, taps={"cos": (0.9, *[0.1 + 0.01 * s] * 3, 1.0), "descent": 0.4 + 0.01 * s})
        for s in (1, 2, 3)
    ]
    (note,) = audit([*told, *runs("dfa", 0.2, 0.1, spread=0.001)]).notes
    assert "DFA is above" in note


def test_the_note_is_shown_with_the_audit_and_the_decision_table():
    found = audit([*runs("fa", 0.5, 0.1), *runs("dfa", 0.1, 0.4)])
    for text in (str(found), str(found.decisions())):
        assert f"note: {found.notes[0]}" in " ".join(text.split())
