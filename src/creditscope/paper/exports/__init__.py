"""Exports: result files in the shapes that other people's figure scripts read; one file per family of results.

A family is a function from records (and the scale of its study) to an `Export`. No torch.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creditscope.record import Record
from creditscope.record.store import write_atomically
from creditscope.registry import EXPORTS

register_export = EXPORTS.register


@dataclass(frozen=True)
class Export:
    """Files by their path under the export root, and what is missing from them, in words.

    >>> from creditscope.paper.exports import Export
    >>> Export({"results/mine.json": {"accuracy": [0.9]}}, missing=("seed 123",)).missing
    ('seed 123',)
    """

    files: dict[str, Any]
    missing: tuple[str, ...] = ()


def write_exports(
    records: Sequence[Record], out: str | Path, *, scale: str = "paper", names: Sequence[str] = ()
) -> tuple[list[Path], list[str]]:
    """Write every family (or those named) under `out`; the files, and what is missing, family by family."""
    written, missing = [], []
    for name in names or EXPORTS.names():
        export: Export = EXPORTS.get(name)(records, scale=scale)
        for path, content in export.files.items():
            target = Path(out) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, json.dumps(content) + "\n")  # a gap is the bare token NaN
            written.append(target)
        missing += [f"{name}: {what}" for what in export.missing]
    return written, missing


__all__ = ["EXPORTS", "Export", "register_export", "write_exports"]
