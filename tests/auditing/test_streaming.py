"""An audit of a folder reads one setting after the other, and says what one of records in memory says."""

import gc
import json
import random
import weakref

import pytest
from builders import make_record, write_record, write_records

from creditscope.auditing import audit
from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.methods import group_methods
from creditscope.record import Snapshot, load_records, open_records
from creditscope.record.files import digest, digest_value
from creditscope.record.store import PROVENANCE, SNAPSHOTS, StoredSnapshots

RATES = (0.1, 0.2, 0.3, 0.4)


def several_settings():
    """Four settings of DFA and BP with their baselines, mixed."""
    found = [make_record(lr=lr, seed=s, rule=rule, frozen=frozen, accuracy=0.4 + 0.3 * (not frozen) + 0.01 * s * lr)
             for lr in RATES for s in (1, 2, 3) for rule in ("bp", "dfa") for frozen in (False, True)]  # fmt: skip
    random.Random(0).shuffle(found)
    return found


@pytest.fixture
def folder(tmp_path):
    return write_records(tmp_path / "records", several_settings())


@pytest.mark.slow
def test_what_it_says_is_the_same(folder):
    stored, read = audit(folder), audit(load_records(folder))
    assert stored.to_dict() == read.to_dict()
    assert stored.sensitivity("growth").to_dicts() == read.sensitivity("growth").to_dicts()
    assert [card.to_dict() for card in stored.cards()] == [card.to_dict() for card in read.cards()]
    assert stored.only("lr 0.2, dfa").to_dict() == read.only("lr 0.2, dfa").to_dict()
    assert (str(stored), str(stored.decisions())) == (str(read), str(read.decisions()))


def test_settings_and_methods_keep_the_order_of_records():
    records = several_settings()
    found = audit(records)
    assert [(m.setting, m.label) for m in group_methods(records)] == [(m.setting, m.method) for m in found.methods]
    assert len({m.setting for m in found.methods}) == len(RATES)


def test_records_stay_on_disk_and_can_be_looked_at(folder):
    for group in audit(folder).groups:
        assert all(isinstance(record.snapshots, StoredSnapshots) for record in group.records)
        record = next(iter(group.runs.values()))
        assert ([s.epoch for s in record.snapshots], record.last.epoch) == ([0, 1], 1)


@pytest.mark.slow
def test_snapshots_of_one_setting_are_in_memory_at_a_time(folder, monkeypatch):
    alive, made = [], MethodAudit.__init__

    def counted(self, **options):
        gc.collect()
        alive.append(sum(type(thing) is Snapshot for thing in gc.get_objects()) - before)
        made(self, **options)

    gc.collect()
    before = sum(type(thing) is Snapshot for thing in gc.get_objects())
    monkeypatch.setattr(MethodAudit, "__init__", counted)
    audit(folder)
    assert alive == [3 * 2 * 2 * 2] * 2 * len(RATES)  # seeds, rules, frozen or not, epochs


def test_facts_are_shared(folder):
    assert len({id(record.facts) for record in open_records(folder)}) == 2


def test_a_forged_record_is_named_and_the_others_are_judged(folder):
    """Digests that fit are no proof: what they cover is checked before it is used."""
    forged = write_record(folder, make_record(lr=0.1, seed=9))
    content = (forged / SNAPSHOTS).read_bytes().replace(b'"epoch":1', b'"epoch":7')
    (forged / SNAPSHOTS).write_bytes(content)
    raw = json.loads((forged / PROVENANCE).read_text())
    seal = raw.pop("seal") | {SNAPSHOTS: digest(content), PROVENANCE: digest_value(raw)}
    (forged / PROVENANCE).write_text(json.dumps(raw | {"seal": seal}))
    found = audit(folder)
    assert [forged.name in problem for problem in found.problems] == [True]
    assert {m.seeds for m in found.methods} == {(1, 2, 3)}


def test_snapshots_that_change_meanwhile_are_refused(folder):
    record = next(iter(open_records(folder)))
    assert record.path is not None
    kept = weakref.ref(record.snapshots[0])
    assert kept() is None
    (record.path / SNAPSHOTS).write_text("")
    with pytest.raises(ValueError, match="a moment ago"):
        record.snapshots[0]
