"""Records: what is on disk; JSON that a person can read and code can check. Importing it imports no torch."""

from creditscope.record.bundle import read_bundle, write_bundle
from creditscope.record.finished import bundle_finished, bundle_if_many
from creditscope.record.load import load_records, open_records
from creditscope.record.schema import (
    CutFacts,
    Facts,
    LayerMeasures,
    ModuleFact,
    ModuleMeasures,
    OutputMeasures,
    Provenance,
    RuleFacts,
    Snapshot,
    TapMeasures,
    WeightFact,
    WeightMeasures,
)
from creditscope.record.spec import RunSpec
from creditscope.record.store import Record, RecordWriter, in_memory, keep_failure, read_record, run_folder
from creditscope.record.stored import begun_by, stored_record

__all__ = [
    "CutFacts",
    "Facts",
    "LayerMeasures",
    "ModuleFact",
    "ModuleMeasures",
    "OutputMeasures",
    "Provenance",
    "Record",
    "RecordWriter",
    "RuleFacts",
    "RunSpec",
    "Snapshot",
    "TapMeasures",
    "WeightFact",
    "WeightMeasures",
    "begun_by",
    "bundle_finished",
    "bundle_if_many",
    "in_memory",
    "keep_failure",
    "load_records",
    "open_records",
    "read_bundle",
    "read_record",
    "run_folder",
    "stored_record",
    "write_bundle",
]
