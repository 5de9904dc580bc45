"""A Ray cluster: every group of runs is a task, which Ray gives to a worker where there is room.

Tasks rather than actors: Ray keeps a task's process for the next one all the same, and after a node was lost a task
waits for room on the others, where an actor that holds its room for the whole time would never let it in.
"""

import importlib
import logging
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import torch

from creditscope.errors import CreditscopeError
from creditscope.train import ray_cluster
from creditscope.train.device import CUDA_SLOTS, available_cores
from creditscope.train.events import Note, to_line
from creditscope.train.places import Slot, import_extra
from creditscope.train.places.here import WORKER_ENVIRONMENT

PATIENCE = 5.0  # seconds for a cluster to answer; Ray itself would try for minutes


class Ray:
    """A cluster at ADDRESS (auto: the one that runs on this host), or one of this host alone, for these runs only."""

    name, outlives, whole = "ray", False, False

    def __init__(self, *, device: str, slots: int | None, address: str = ""):
        if not address:
            _choose_token()
        self.ray = import_extra("ray", "ray")
        self.refused: set[str] = set()  # nodes that cannot train these runs
        self.to_tell: set[str] = set()  # and why
        self._own: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._connected = not self.ray.is_initialized()  # or else the cluster is the caller's, and stays
        if self._connected:
            if not address:
                self._own, address = _start_own(slots or available_cores())
            _connect(self.ray, address)
        resources = self.ray.cluster_resources()
        cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        self.device = torch.device(("cuda" if gpus else "cpu") if device == "auto" else device)
        if self.device.type == "cuda" and not gpus:
            self.leave()
            raise CreditscopeError("Expected a GPU in the cluster, but got none. Leave --device out, or give cpu.")
        per_gpu = 0
        if self.device.type == "cuda":
            per_gpu = math.ceil(slots / gpus) if slots else max(1, min(CUDA_SLOTS, cpus // gpus))
        self.count = slots or per_gpu * gpus or max(1, cpus)
        share = math.floor(1e4 / per_gpu) / 1e4 if per_gpu else 0  # Ray counts GPUs by 1e-4
        environment = {name: value for name, value in WORKER_ENVIRONMENT.items() if name != "PYTHONSAFEPATH"}
        needs = {"num_cpus": 1, "num_gpus": share, "max_retries": 0, "runtime_env": {"env_vars": environment}}
        # 0 calls: its process takes as many as come, also on a GPU
        self.task = self.ray.remote(max_calls=0, **needs)(_make_call(os.getcwd()))

    def nodes(self) -> set[str]:
        """Nodes that could train."""
        needed = "GPU" if self.device.type == "cuda" else "CPU"
        return {node["NodeID"] for node in self.ray.nodes() if node["Alive"] and node["Resources"].get(needed)}

    def open(self, count: int) -> list[Slot]:
        self._open = {_Task(self) for _ in range(count)}
        if not count:
            self.leave()
        return list(self._open)

    def close(self, slot: "_Task") -> None:
        """After the last one nothing of ours is left."""
        with self._lock:
            if slot in self._open:
                self._open.remove(slot)
                slot.cancel()
                if not self._open:
                    self.leave()

    def leave(self) -> None:
        if self._connected:
            self.ray.shutdown()
        if self._own is not None:
            self._own.communicate()  # ends with its standard input


make_place = Ray


class _Task:
    """One task at a time."""

    def __init__(self, place: Ray):
        self.place, self.given, self.future = place, None, Future[Any]()

    def submit(self, function: Any, text: str) -> "Future[Any]":
        self.future = Future[Any]()
        self._give(self.future, f"{function.__module__}:{function.__qualname__}", text)
        return self.future

    def _give(self, future: "Future[Any]", name: str, text: str) -> None:
        """Have it done by a node that has not refused, and by another if this one refuses, too."""
        place = self.place
        elsewhere = {"ray.io/node-id": f"!in({','.join(place.refused)})"} if place.refused else None
        self.given = place.task.options(label_selector=elsewhere).remote(name, text)

        def take(done: "Future[Any]") -> None:
            try:
                node, result = done.result()
                if why := result.get("refused"):
                    place.refused.add(node)
                    place.to_tell.add(why)
                    if place.nodes() - place.refused:
                        return self._give(future, name, text)
                while place.to_tell and "lines" in result:
                    result["lines"].append(to_line(Note(place.to_tell.pop())))
                _settle(future, result)
            except BaseException as error:  # of a node or a worker that died
                _settle(future, error)

        self.given.future().add_done_callback(take)

    def renew(self) -> None:
        """Nothing to do: Ray has another worker."""

    def cancel(self) -> None:
        if self.given is not None:
            with suppress(Exception):  # it has ended, or its cluster has
                self.place.ray.cancel(self.given, force=True)
            _settle(self.future, RuntimeError("ended before its end"))  # Ray says nothing more once we have left

    def close(self) -> None:
        self.place.close(self)


def _settle(future: "Future[Any]", outcome: Any) -> None:
    """Unless it was before: a task may end while it is being ended."""
    with suppress(InvalidStateError):
        future.set_exception(outcome) if isinstance(outcome, BaseException) else future.set_result(outcome)


def _make_call(folder: str) -> Any:
    """What a Ray worker runs: sent by value, so that it can say if this package is not there."""

    def call(name: str, text: str) -> tuple[str, dict[str, Any]]:
        import ray

        node = ray.get_runtime_context().get_node_id()
        if folder in sys.path:  # Ray puts it first, and a file there that is called like a module would be run for it
            sys.path.remove(folder)
            sys.path.append(folder)
        module, _, function = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), function)
        except ImportError as error:
            host = socket.gethostname()
            return node, {"refused": f"Expected creditscope on host {host}, but got: {error}. Install it there."}
        return node, found(text)

    return call


def _choose_token() -> None:
    """One that the cluster we start asks for, so that nobody else gives it work; Ray reads it when it is imported."""
    if "RAY_AUTH_MODE" in os.environ or ("ray" in sys.modules and sys.modules["ray"].is_initialized()):
        return
    if "ray" in sys.modules:
        raise CreditscopeError(
            "Expected ray not to be imported yet, or a cluster, but got neither. Call ray.init() before, and the runs "
            "go there."
        )
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _start_own(cpus: int) -> tuple["subprocess.Popen[str]", str]:
    """A cluster of this host that ends with this process, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-P", ray_cluster.__file__, str(cpus)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C at the terminal is for us
    )
    assert process.stdout
    if not (address := process.stdout.readline().strip()):
        process.communicate()
        raise CreditscopeError("Expected Ray to start on this host, but it did not. What it wrote is above.")
    return process, address


def _connect(ray: Any, address: str) -> None:
    """Be a driver of a cluster that answers; signals stay ours."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), PATIENCE).close()
        except (OSError, ValueError) as error:
            raise CreditscopeError(
                f"Expected a Ray cluster at HOST:PORT, but got {address!r}: {error}. Start one (ray start --head), or "
                "give --on ray, which starts one on this host."
            ) from error
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise CreditscopeError(
            f"Expected a Ray cluster at {address}, but got: {said} Start one (ray start --head), or give --on ray, "
            "which starts one on this host."
        ) from error
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)  # Ray takes it
