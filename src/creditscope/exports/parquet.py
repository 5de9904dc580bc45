"""One table of all runs, a row per snapshot, that DuckDB, pandas or Polars queries; it can be made again any time.

Columns: the run, its method and status, every field of its spec (options as JSON), versions and device, every number
of a snapshot, and every number of its taps as a list, beside `taps`, their names.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, get_origin

from creditscope.errors import CreditscopeError
from creditscope.exports import Written, register_export
from creditscope.record import Record, RunSpec, Snapshot, TapMeasures, in_memory
from creditscope.record.schema import Count
from creditscope.record.table import SCALARS, method_name

ROWS = 2000
"""That are in memory at once, and make a row group."""
ORIGIN = ("status", "diverged_epoch", "seconds", "device", "engine", "creditscope", "torch", "commit", "finished")
NUMBERS = (*(f.name for f in fields(Snapshot) if f.type == Count), *SCALARS)
PER_TAP = tuple(f.name for f in fields(TapMeasures))


@register_export("parquet")
def write_parquet(records: Sequence[Record], out: Path, *, scale: str = "") -> Written:
    """Write the table to `out`, or to records.parquet under it, whole or not at all; one record is read at a time."""
    arrow, parquet = _libraries()
    path = out if out.suffix == ".parquet" else out / "records.parquet"
    part, missing = path.with_name(f"{path.name}.part"), []
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = arrow.schema([(name, _arrow_type(arrow, kind)) for name, kind in _columns().items()])
    rows = _rows(records, missing)
    try:
        with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
            while some := list(islice(rows, ROWS)):
                writer.write_table(arrow.Table.from_pylist(some, schema=schema))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return Written((path,), tuple(missing))


def _libraries() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CreditscopeError(
            "Expected the package pyarrow to write Parquet, but it is not installed. Install it: pip install "
            "'creditscope[parquet]'."
        ) from None
    return pyarrow, pyarrow.parquet


def _rows(records: Sequence[Record], missing: list[str]) -> Iterator[dict[str, Any]]:
    for stored in records:
        try:
            record = in_memory(stored)
        except CreditscopeError as error:
            missing.append(str(error))
            continue
        about = _about(record)
        for snapshot in record.snapshots:
            own = {name: getattr(snapshot, name) for name in NUMBERS}
            yield about | own | {name: getattr(snapshot.taps, name) for name in PER_TAP}


def _about(record: Record) -> dict[str, Any]:
    """What all snapshots of a run have in common."""
    spec = {} if record.spec is None else vars(record.spec)
    plain = {n: json.dumps(v, sort_keys=True) if isinstance(v, dict) else v for n, v in spec.items()}
    origin = {name: getattr(record.provenance, name) for name in ORIGIN}
    return {"run": record.name, "method": method_name(record), "taps": record.facts.taps, **plain, **origin}


@cache
def _columns() -> dict[str, type]:
    """The kind of each; choices and options are text."""
    spec = {f.name: f.type if f.type in (int, float, bool) else str for f in fields(RunSpec)}
    origin = dict.fromkeys(ORIGIN, str) | {"diverged_epoch": int, "seconds": float}
    numbers = {name: int if name not in SCALARS else float for name in NUMBERS}
    return {"run": str, "method": str, **spec, **origin, **numbers, "taps": list[str]} | dict.fromkeys(
        PER_TAP, list[float]
    )


def _arrow_type(arrow: Any, kind: Any) -> Any:
    plain = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    return arrow.list_(plain[kind.__args__[0]]) if get_origin(kind) is list else plain[kind]
