"""A Ray cluster of several nodes on this host: `python tests/engines/ray_nodes.py`."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SMALL = {"include_dashboard": False, "object_store_memory": 80 * 2**20}


@contextmanager
def ray_nodes(*cpus: int) -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster` with so many CPUs at each node, the first of them the head; it has no driver."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus[0], **SMALL})
    try:
        for count in cpus[1:]:
            cluster.add_node(num_cpus=count, object_store_memory=SMALL["object_store_memory"])
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def node_apart(address: str, hidden: Path) -> Iterator[None]:
    """A node of one CPU that sees an empty folder where this process sees `hidden`: a mount of its own."""
    ray = Path(sys.executable).with_name("ray")
    node = (
        f"'{ray}' start --address={address} --num-cpus=1 --object-store-memory={SMALL['object_store_memory']} --block"
    )
    shell = f"mount -t tmpfs none '{hidden}' && exec {node}"
    command: Sequence[str] = ["unshare", "--mount", "sh", "-c", shell]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    begun = time.monotonic()
    with ray_nodes(1, 1, 1) as started:
        print(f"three nodes at {started.address} after {time.monotonic() - begun:.1f} s")
        for node in started.list_all_nodes():
            print(node.unique_id, "raylet", node.all_processes["raylet"][0].process.pid)
