"""Where a record comes from: versions, commit, device, threads."""

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import creditscope
from creditscope.record.schema import Facts, Provenance


def begin_provenance(facts: Facts, *, device: torch.device, engine: str, **others) -> Provenance:
    """Provenance of a run that starts now."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return Provenance(
        creditscope=creditscope.__version__,
        commit=source_commit(),
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        platform=platform.platform(),
        device=f"{device.type} ({name})",
        threads=torch.get_num_threads(),
        engine=engine,
        started=now(),
        facts=facts,
        **others,
    )


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
