"""Exports: records as files for other tools, one file each; extensions bring theirs. No torch.

An export is a function `(records, out, *, scale) -> Written`: it writes under `out`, of the studies of that scale if it
goes by studies.
"""

from dataclasses import dataclass
from pathlib import Path

from creditscope.registry import EXPORTS

register_export = EXPORTS.register


@dataclass(frozen=True)
class Written:
    """The files of an export, and what is missing from them, in words.

    >>> from pathlib import Path
    >>> from creditscope.exports import Written
    >>> Written((Path("runs.parquet"),), missing=("seed 123",)).missing
    ('seed 123',)
    """

    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()


__all__ = ["EXPORTS", "Written", "register_export"]
