"""What was made from what: outputs that need not be made again, because neither they nor anything behind them changed.

Contents are compared, not times. What is not looked at: fonts, a matplotlibrc, and code of other packages but for
their versions. Where one of these was changed, delete the outputs, and they are made again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import creditscope
from creditscope.files import write_whole

RECORDED = (".json", ".jsonl", ".xz")
"""How files of records end that are judged and drawn; weights are neither."""
LIBRARIES = ("matplotlib", "numpy", "scipy", "pandas", "xarray", "pillow", "jinja2")
"""Others that have a hand in what is drawn."""


def digest_files(paths: Iterable[Path], root: Path) -> str:
    """Of names and contents."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(f"{path.relative_to(root).as_posix()}\0{_digest(path)}\n".encode())
    return found.hexdigest()


def digest_records(root: Path) -> str:
    """Of all that is judged and drawn in a folder of records."""
    return digest_files((p for p in root.rglob("*") if p.suffix in RECORDED and p.is_file()), root)


def digest_code() -> str:
    """Of this package, and the versions of what it draws with."""
    root = Path(creditscope.__file__).parent
    own = digest_files((p for p in root.rglob("*") if p.is_file() and p.suffix != ".pyc"), root)
    return " ".join([own, *map(_version, LIBRARIES)])


class Made:
    """The outputs in a folder, each with a digest of what it was made from; kept beside them as made.json."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / "made.json"
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = None
        self.kept: Mapping[str, Any] = found if isinstance(found, dict) else {}

    def unchanged(self, name: str, source: str) -> list[Path]:
        """The files of this name, if they are as they were made, and from this source; else none."""
        match self.kept.get(name):
            case {"from": known, "files": dict(files)} if known == source:
                paths = {self.folder / path: digest for path, digest in files.items()}
                return list(paths) if all(p.is_file() and _digest(p) == d for p, d in paths.items()) else []
        return []

    def keep(self, name: str, source: str, paths: Sequence[Path]) -> None:
        """These files were made from this source."""
        files = {path.relative_to(self.folder).as_posix(): _digest(path) for path in paths}
        self.kept = {**self.kept, name: {"from": source, "files": files}}
        write_whole({self.path: json.dumps(self.kept, indent=1) + "\n"})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} none"
