"""Ray with several nodes on this host: nodes and workers that die, hosts that cannot train, folders not shared."""

import importlib.util
import os
import signal
from pathlib import Path

import psutil
import pytest
from ray_nodes import node_apart, ray_nodes
from runs import OnceEnded, differing, train, twelve_runs

from creditscope.errors import CreditscopeError

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
]


def workers_of(cluster) -> list[psutil.Process]:
    """Processes that train, of all nodes."""
    raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
    children = [child for raylet in raylets for child in psutil.Process(raylet).children()]
    return [child for child in children if child.cmdline()[:1] == ["ray::call"]]


def test_a_node_is_lost(tmp_path, by_here):
    specs = twelve_runs()
    with ray_nodes(1, 1, 1) as cluster:
        lost = cluster.list_all_nodes()[-1]
        kill = OnceEnded(3, lambda: cluster.remove_node(lost, allow_graceful=False))
        records = train(specs, tmp_path, on=f"ray:{cluster.address}", readers=[kill])
        assert len(cluster.list_all_nodes()) == 2
    assert [record.spec for record in records] == specs
    assert {record.provenance.place for record in records} == {"ray"}
    assert differing(specs, by_here, tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_is_lost(tmp_path, by_here, number):
    specs, killed = twelve_runs(), []

    with ray_nodes(1, 1) as cluster:

        def kill() -> None:
            killed.extend(workers_of(cluster)[:1])
            os.kill(killed[0].pid, number)

        train(specs, tmp_path, on=f"ray:{cluster.address}", readers=[OnceEnded(2, kill)])
    assert len(killed) == 1
    assert differing(specs, by_here, tmp_path) == []


def test_a_node_without_the_folder_sends_records_home(tmp_path, by_here):
    """The only node with a CPU sees an empty folder in place of the driver's."""
    specs, root = twelve_runs(), tmp_path / "records"
    root.mkdir()
    with ray_nodes(0) as cluster, node_apart(cluster.address, root):
        train(specs, root, on=f"ray:{cluster.address}", slots=1)
    assert differing(specs, by_here, root) == []
    assert not (root / ".work").exists()


def test_a_node_without_the_package_is_named_and_passed_by(tmp_path, by_here):
    specs, notes = twelve_runs(), []
    other = tmp_path / "other" / "creditscope"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    with ray_nodes(1) as cluster:
        cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(other.parent)})
        train(specs, tmp_path / "records", on=f"ray:{cluster.address}", problems=notes)
    assert differing(specs, by_here, tmp_path / "records") == []
    assert sum("creditscope" in note for note in notes) == 1


def test_a_cluster_where_no_node_can_is_refused(tmp_path):
    other = tmp_path / "other" / "creditscope"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    with ray_nodes(0) as cluster:
        cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(other.parent)})
        with pytest.raises(CreditscopeError, match="Expected creditscope on host"):
            train(twelve_runs(), tmp_path / "records", on=f"ray:{cluster.address}")
    assert list(Path(tmp_path / "records").glob("*/snapshots.jsonl")) == []
