"""Thousands of altered records and bundles: each is refused by name or read as it was; none ends a command.

`python bench/fuzz_records.py` is the long version, on real records.
"""

import pytest
from builders import make_family

RECORDS = make_family(seeds=(1,))[:3]


@pytest.mark.parametrize("kind", ["folder", "bundle"])
@pytest.mark.slow
def test_an_altered_record_is_refused_or_as_it_was(bench, kind):
    tool = bench("fuzz_records")
    counted = tool.fuzz(RECORDS, 1200, kind=kind, seed=1)
    assert {found for _, found in counted} == set(tool.FINE), counted
    assert sum(n for (_, found), n in counted.items() if found == "refused") > 900
    assert len({done for done, _ in counted}) > 15


@pytest.mark.parametrize("kind", ["folder", "bundle"])
@pytest.mark.slow
def test_what_is_read_all_the_same_can_be_judged_and_drawn(bench, kind):
    """Without their digests alterations that keep the form are taken."""
    counted = bench("fuzz_records").fuzz(RECORDS, 150, kind=kind, seed=2, unsealed=True)
    found = {out: sum(n for (_, o), n in counted.items() if o == out) for _, out in counted}
    assert not [out for out in found if out in ("lost", "taken") or out.startswith("exception")], counted
    assert sum(n for out, n in found.items() if out.startswith("taken, ")) > 15
