"""The table of all runs, as pandas and DuckDB read it, against the records."""

import json
import sys
from dataclasses import asdict, replace

import duckdb
import numpy as np
import pandas as pd
import pytest
from builders import make_family, make_record, make_snapshot, write_records

from creditscope.exports import parquet
from creditscope.record import bundle_finished, load_records
from creditscope.record.table import PER_TAP, SCALARS


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Two settings, every number another, and one run that diverged."""
    rng, made = np.random.default_rng(0), {r.name: r for r in make_family()}.values()
    some = [make_record(lr=0.3, seed=s, diverged=1, net_options={"depth": 4, "gain": 0.5}) for s in (1, 2)]

    def varied(snapshot):
        cos = tuple(rng.uniform(-1, 1, 5))
        return replace(snapshot, loss=float(rng.random()), taps=replace(snapshot.taps, cos=(None, *cos[1:])))

    some = [replace(r, snapshots=tuple(map(varied, r.snapshots))) for r in (*made, *some)]
    return write_records(tmp_path_factory.mktemp("parquet") / "records", some)


@pytest.fixture(scope="module")
def table(records):
    found = parquet.write_parquet(load_records(records), records.parent / "deep" / "runs.parquet")
    assert found.missing == ()
    return found.files[0]


def test_pandas_reads_what_the_records_say(records, table):
    stored = {r.name: r for r in load_records(records)}
    frame = pd.read_parquet(table).set_index(["run", "epoch"])
    assert len(frame) == sum(len(r.snapshots) for r in stored.values())
    for (run, epoch), row in frame.iterrows():
        record = stored[run]
        (snapshot,) = [s for s in record.snapshots if s.epoch == epoch]
        assert record.spec is not None
        spec = {n: json.loads(row[n]) if isinstance(v, dict) else row[n] for n, v in asdict(record.spec).items()}
        assert spec == asdict(record.spec)
        assert (row["status"], tuple(row["taps"])) == (record.provenance.status, record.facts.taps)
        for name in SCALARS:
            np.testing.assert_array_equal(row[name], np.array(getattr(snapshot, name), dtype=float))
        for name in (name for name in PER_TAP if name != "growth"):
            np.testing.assert_array_equal(row[name], np.array(getattr(snapshot.taps, name), dtype=float))


def test_duckdb_counts_and_averages(records, table):
    stored = load_records(records)
    query = (
        "select rule, count(distinct run), avg(accuracy), avg(cos[5]) from {} where epoch = 1 and not frozen group by 1"
    )
    found = {rule: rest for rule, *rest in duckdb.sql(query.format(f"'{table}'")).fetchall()}
    for rule in ("bp", "dfa"):
        lasts = [r.last for r in stored if r.spec and r.spec.rule == rule and not r.spec.frozen]
        means = [np.mean([s.accuracy for s in lasts]), np.mean([s.taps.cos[4] for s in lasts])]
        assert found[rule] == pytest.approx([len(lasts), *means])
    depths = duckdb.sql(f"select distinct net_options->>'gain' from '{table}' where status = 'diverged'").fetchall()
    assert depths == [("0.5",)]


def test_rows_come_in_groups_and_bundles_give_the_same(records, table, tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    whole = write_records(tmp_path / "records", load_records(records))
    bundle_finished(whole)
    monkeypatch.setattr(parquet, "ROWS", 7)
    (path,) = parquet.write_parquet(load_records(whole), tmp_path).files
    assert path == tmp_path / "records.parquet"
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [7, 7, 7, 7]
    by = ["run", "epoch"]
    pd.testing.assert_frame_equal(
        pd.read_parquet(path).sort_values(by, ignore_index=True),
        pd.read_parquet(table).sort_values(by, ignore_index=True),
    )


def test_the_command_and_what_it_says_without_pyarrow(call, records, tmp_path, monkeypatch):
    out = tmp_path / "runs.parquet"
    code, said, _ = call("export", "parquet", "--records", records, "--out", out)
    assert (code, said.splitlines()) == (0, [f"wrote {out}"])
    assert duckdb.sql(f"select count(distinct run) from '{out}'").fetchall() == [(14,)]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = call("export", "parquet", "--records", records, "--out", tmp_path / "none.parquet")
    assert (code, "creditscope[parquet]" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["runs.parquet"]
    (tmp_path / "empty").mkdir()
    assert call("export", "parquet", "--records", tmp_path / "empty", "--out", out)[0] == 2


def test_a_watched_model_has_no_spec(tmp_path):
    watched = replace(make_record(snapshots=[make_snapshot()]), spec=None)
    (path,) = parquet.write_parquet([watched], tmp_path).files
    (row,) = pd.read_parquet(path).to_dict("records")
    assert (pd.isna(row["task"]), row["accuracy"], row["run"]) == (True, 0.7, "watched model")
