"""A Ray cluster of this host alone that ends with whoever started it, also if that was killed: a script.

Ray's own helpers outlive a killed driver by a minute. So a process of ours starts the cluster, becomes the parent of
all that lose theirs, and ends them when its standard input ends.
"""

import ctypes
import logging
import os
import sys
from contextlib import suppress

import psutil


def main() -> None:
    """Start a cluster of so many CPUs, print its address, wait for the end of standard input, and end it all."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    import ray

    ray.init(
        address="local",
        num_cpus=int(sys.argv[1]),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, 1)
    os._exit(0)  # and not by way of Ray, which has gone


if __name__ == "__main__":
    main()
