"""Any executor serves, by argument: Dask's, with a worker that dies."""

import pytest
from runs import OnceEnded, differing, train, twelve_runs

pytest.importorskip("distributed", reason="dask is not installed")
pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default")]


def test_a_worker_is_lost(tmp_path, by_here):
    from distributed import LocalCluster

    specs = twelve_runs()
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, cluster.get_client() as client:
        lost = next(iter(cluster.workers.values())).pid

        def kill() -> None:
            import psutil

            psutil.Process(lost).kill()

        records = train(specs, tmp_path, on=client.get_executor(), slots=3, readers=[OnceEnded(3, kill)])
    assert {record.provenance.place for record in records} == {"executor"}
    assert differing(specs, by_here, tmp_path) == []
