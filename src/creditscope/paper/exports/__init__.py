"""Exports: result files in the shapes that other people's figure scripts read; one file per family of results.

A family is a function from records (and the scale of its study) to an `Export`. No torch.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from creditscope.exports import EXPORTS, Written
from creditscope.record import Record
from creditscope.record.store import write_atomically


@dataclass(frozen=True)
class Export:
    """Files by their path under the export root, and what is missing from them, in words.

    >>> from creditscope.paper.exports import Export
    >>> Export({"results/mine.json": {"accuracy": [0.9]}}, missing=("seed 123",)).missing
    ('seed 123',)
    """

    files: dict[str, Any]
    missing: tuple[str, ...] = ()


Family = Callable[..., "Export"]


def register_export(name: str) -> Callable[[Family], Family]:
    """Decorator that makes a family an export of that name: its files are written as JSON.

    >>> from creditscope.paper.exports import Export, register_export
    >>> @register_export("counts")
    ... def export_counts(records, *, scale):
    ...     return Export({"counts.json": {"runs": len(records)}})
    >>> export_counts([], scale="demo").files
    {'counts.json': {'runs': 0}}
    """

    def keep(family: Family) -> Family:
        @wraps(family)
        def write(records: Sequence[Record], out: Path, *, scale: str) -> Written:
            export, files = family(records, scale=scale), []
            for path, content in export.files.items():
                files.append(target := out / path)
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(target, json.dumps(content) + "\n")  # a gap is the bare token NaN
            return Written(tuple(files), export.missing)

        EXPORTS.register(name)(write)
        return family

    return keep


def write_exports(
    records: Sequence[Record], out: str | Path, *, scale: str = "paper", names: Sequence[str] = ()
) -> tuple[list[Path], list[str]]:
    """Write every family (or those named) under `out`; the files, and what is missing, family by family."""
    written, missing = [], []
    for name in names or [name for name in EXPORTS.names() if not EXPORTS.is_built_in(name)]:
        found: Written = EXPORTS.get(name)(records, Path(out), scale=scale)
        written += found.files
        missing += [f"{name}: {what}" for what in found.missing]
    return written, missing


__all__ = ["EXPORTS", "Export", "register_export", "write_exports"]
