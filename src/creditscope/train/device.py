"""Where runs are trained: the device, how it multiplies, room on a GPU that several processes share; and provenance.

What one process has no memory for now, it may have in a moment.
"""

import gc
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import creditscope
from creditscope.errors import CreditscopeError
from creditscope.record.schema import Facts, Provenance

PATIENCE = 120.0  # seconds to wait for others to give memory back
OTHERS = 8  # others who hold less than this part of the device are not waited for: it would not help
CUDA_SLOTS = 16  # workers that share a GPU at most: while one measures, or runs small kernels, others train
CUDA_SLOT_BYTES = 8 * 2**30  # device memory to a worker, so that a small GPU is not shared by many
SPARE = 2  # how much of what was held when memory ran out a second try may take: that, and what was asked for next


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_slots(device: torch.device) -> int:
    """Workers that share a device: one to a core, on a GPU fewer if there are very many, or little memory."""
    if device.type != "cuda":
        return available_cores()
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1, min(available_cores(), CUDA_SLOTS, memory // CUDA_SLOT_BYTES))


def choose_device(name: str) -> torch.device:
    """ "cpu", "cuda" (or "cuda:1", …), or "auto": CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise CreditscopeError(f"Expected a device auto, cpu or cuda, but got {name!r}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CreditscopeError("Expected a CUDA device, but torch finds none. Use --device cpu.")
    return device


@contextmanager
def float32_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Inside, matrix products and convolutions of float32 on CUDA are full float32, or TF32, which torch would take for
    convolutions unasked."""
    if precision == "tf32" and device.type != "cuda":
        raise CreditscopeError(f"Expected a CUDA device for precision 'tf32', but got {device.type!r}. Use 'float32'.")
    switches = _find_switches() if device.type == "cuda" else []
    before = [getattr(owner, name) for owner, name, _ in switches]
    try:
        for owner, name, values in switches:
            setattr(owner, name, values[precision == "tf32"])
        yield
    finally:
        for (owner, name, _), value in zip(switches, before, strict=True):
            setattr(owner, name, value)


def _find_switches() -> list[tuple[Any, str, tuple[Any, Any]]]:
    """Where torch keeps it, with the values for float32 and TF32.

    Since 2.9 there are two sets of names. The older ones cannot be read once the newer have been set apart by a user;
    convolutions and RNNs need both, because what torch itself reads are the older.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    older = [owner for owner in (matmul, cudnn) if _has(owner, "allow_tf32")]
    newer = [cudnn.conv, cudnn.rnn] if _has(cudnn, "conv") else []
    newer += [matmul] if matmul not in older else []
    switches: list[tuple[Any, str, tuple[Any, Any]]] = [(owner, "allow_tf32", (False, True)) for owner in older]
    return switches + [(owner, "fp32_precision", ("ieee", "tf32")) for owner in newer]


def _has(owner: Any, name: str) -> bool:
    try:
        return hasattr(owner, name)
    except RuntimeError:
        return False


def wait_for_device(device: torch.device) -> None:
    """Until it has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget_peak(device: torch.device) -> None:
    """Count from here on what `peak_bytes` says."""
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """The most memory that this process held on the device."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0


def release_memory(device: torch.device) -> None:
    """Give back to the device all that is not in use."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def release_surplus(device: torch.device) -> None:
    """Give back what is not in use, if more is held than the least that a worker is counted with: after a snapshot,
    which takes far more than the training that follows."""
    if device.type == "cuda" and torch.cuda.memory_reserved(device) > CUDA_SLOT_BYTES:
        release_memory(device)


def wait_for_room(device: torch.device, peak: int, should_stop: Callable[[], bool]) -> bool:
    """Whether there is room for a second try, where the first ran out of memory at `peak` bytes; others who hold memory
    of the device are given time to release it, if all of theirs would be enough."""
    if device.type != "cuda":
        return False
    needed, deadline = SPARE * peak, time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not should_stop():
        free, total = torch.cuda.mem_get_info(device)
        own = torch.cuda.memory_reserved(device)
        if total - free - own < total / OTHERS or needed > total:
            return False
        if free + own >= needed:
            return True
        time.sleep(1 + os.getpid() % 16 / 16)  # so that not all who wait try at once
    return False


def begin_provenance(facts: Facts, *, device: torch.device, engine: str, **others: Any) -> Provenance:
    """Where the record of a run that starts now comes from: versions, commit, device, threads."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return Provenance(
        creditscope=creditscope.__version__,
        commit=source_commit(),
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        cpu=cpu_capability(),
        platform=platform.platform(),
        device=f"{device.type} ({name})",
        threads=torch.get_num_threads(),
        engine=engine,
        started=now(),
        facts=facts,
        **others,
    )


def cpu_capability() -> str:
    """Which instructions torch uses here: AVX2 and AVX-512 give other last bits."""
    return torch.backends.cpu.get_cpu_capability()


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def source_commit() -> str:
    """The commit of the checkout this package runs from, with + if it was changed; empty outside one."""
    folder = Path(__file__).resolve().parents[3]
    if not (folder / ".git").exists():
        return ""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
