"""What was asked of a run names it, and the manual describes every field."""

import json
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_record, make_spec, unseal, write_record

from creditscope.record import RecordWriter, RunSpec, read_record, schema
from creditscope.record.spec import LATER_FIELDS
from creditscope.record.stored import ended_meanwhile

ROOT = Path(__file__).parents[2]


def another(value: Any) -> Any:
    """Of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else {"a": 1} if isinstance(value, dict) else f"{value}x"


class TestSpec:
    @pytest.mark.parametrize(
        ("one", "other"),
        [({}, {}), ({"net_options": {"a": 1, "b": 2}}, {"net_options": {"b": 2, "a": 1}}), ({"lr": 1}, {"lr": 1.0})],
    )
    def test_equal_specs_have_one_hash(self, one, other):
        assert make_spec(**one) == make_spec(**other)
        assert make_spec(**one).digest() == make_spec(**other).digest()

    def test_the_file_is_the_spec_and_whole_numbers_are_read_back(self, tmp_path):
        """weight_decay=0 is the run of weight_decay=0.0, and it is read back under the name it was written by."""
        record = make_record(weight_decay=0, penalty=1)
        folder = write_record(tmp_path, record)
        assert read_record(folder).spec == record.spec
        assert json.loads((folder / "spec.json").read_text()) == asdict(record.spec)

    @pytest.mark.parametrize("name", [f.name for f in fields(RunSpec)])
    def test_any_changed_field_changes_the_hash(self, name):
        spec = make_spec()
        assert replace(spec, **{name: another(getattr(spec, name))}).digest() != spec.digest()

    def test_records_from_before_a_field_keep_their_names(self, tmp_path):
        """The hash of this spec was taken before `decay_on` came; its file lacks the field."""
        spec = RunSpec(task="mnist1d", net="resmlp", rule="dfa", epochs=1)
        assert replace(spec, epochs=60).digest() == "42ada3e7769e"
        folder = unseal(write_record(tmp_path, replace(make_record(), spec=spec)))
        stored = json.loads((folder / "spec.json").read_text())
        (folder / "spec.json").write_text(json.dumps({n: v for n, v in stored.items() if n not in LATER_FIELDS}))
        assert read_record(folder).spec == spec
        with RecordWriter(tmp_path, spec).open() as writer:
            assert ended_meanwhile(writer) == "complete"

    @pytest.mark.parametrize(
        ("poorer", "richer"),
        [
            ({"noise": False}, {"noise": True}),
            ({"tier": "quick"}, {"tier": "standard"}),
            ({"tier": "standard"}, {"tier": "full"}),
            ({"snapshot_every": 0}, {"snapshot_every": 2}),
            ({"snapshot_at": "4"}, {"snapshot_at": "log"}),
        ],
    )
    def test_a_richer_record_stands_for_a_poorer_one_and_not_the_other_way_round(self, poorer, richer):
        one, other = make_spec(epochs=6, **richer), make_spec(epochs=6, **poorer)
        assert one.measures(other)
        assert not other.measures(one)

    def test_records_on_other_rows_do_not_stand_for_each_other(self):
        few, many = make_spec(eval_rows=512), make_spec(eval_rows=1024)
        assert not few.measures(many)
        assert not many.measures(few)

    @pytest.mark.parametrize(
        ("how", "epochs"),
        [
            ({"snapshot_every": 5}, [0, 5, 10]),
            ({"snapshot_every": 4}, [0, 4, 8, 10]),
            ({"snapshot_every": 0}, [0, 10]),
            ({"snapshot_at": "3,99"}, [0, 3, 10]),
            ({"snapshot_at": "log"}, [0, 1, 2, 4, 8, 10]),
        ],
    )
    def test_snapshots_are_due_before_and_after_training_and_as_asked(self, how, epochs):
        spec = make_spec(epochs=10, **how)
        assert [e for e in range(11) if spec.snapshot_due(e)] == epochs

    def test_the_name_is_readable(self):
        spec = make_spec(rule="here/my_rule.py:Mine", seed=7, frozen=True)
        assert spec.name() == f"mnist1d-resmlp-Mine-frozen-s7-{spec.digest()}"


@pytest.mark.parametrize(
    "kind", [k for k in vars(schema).values() if is_dataclass(k) and k.__module__.startswith("creditscope.")]
)
def test_the_manual_describes_every_field(kind):
    manual = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    assert [f.name for f in fields(kind) if f"`{f.name}`" not in manual] == []
