"""Data files of a task: looked for in the data folder, checked, fetched from their home if missing, and read safely."""

import hashlib
import io
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError

ADMITTED = {
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
    "numpy._core.numeric": ("_frombuffer",),
    "numpy": ("ndarray", "dtype"),
    "scipy.sparse.csr": ("csr_matrix",),
    "scipy.sparse._csr": ("csr_matrix",),
    "collections": ("defaultdict",),
    "__builtin__": ("list", "object"),
    "builtins": ("list",),
    "copy_reg": ("_reconstructor",),
    "_codecs": ("encode",),
}
"""All that a pickle may name: what NumPy arrays, SciPy sparse matrices and plain containers are made of."""


def data_root() -> Path:
    """Where data files are looked for: CREDITSCOPE_DATA (set by --data-root), or a folder in the user's cache."""
    given = os.environ.get("CREDITSCOPE_DATA")
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given) if given else (Path(cache) if cache else Path.home() / ".cache") / "creditscope"
    except RuntimeError:  # of a user who has no home
        raise CreditscopeError(
            "Expected a folder for data files, but got no home to put it in. Use --data-root, or set CREDITSCOPE_DATA."
        ) from None


@dataclass(frozen=True)
class DataFiles:
    """The files of one data set: where they lie under the data folder, their checksums ("md5:…"), and their home.

    `url` is a folder (file names are added), or an archive of them, which has a checksum of its own.
    """

    task: str
    folder: str
    checksums: Mapping[str, str]
    url: str
    archive: str = ""

    @property
    def path(self) -> Path:
        return data_root() / self.folder

    def present(self) -> bool:
        """Whether all of them are there (unchecked)."""
        return all((self.path / name).is_file() for name in self.checksums)

    def require(self) -> Path:
        """The folder, with every file in it and unaltered; fetched first if none is there."""
        if not any((self.path / name).is_file() for name in self.checksums):
            self._fetch()
        for name, checksum in self.checksums.items():
            self._check(self.path / name, checksum)
        return self.path

    def _check(self, path: Path, expected: str) -> None:
        if not path.is_file():
            raise CreditscopeError(f"Expected the data file {path}, but it is missing. Get it from {self.url}.")
        kind, _, digest = expected.partition(":")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
        if found != digest:
            raise CreditscopeError(
                f"Expected {path} with {kind} {digest}, but got {found} ({path.stat().st_size} bytes): it is "
                f"truncated or altered. Delete it and get it again from {self.url}."
            )

    def _fetch(self) -> None:
        """Download with a progress bar; without a network, say so and name the folder to fill."""
        import pooch

        download: Any = pooch.HTTPDownloader(progressbar=True, timeout=20)
        try:
            if self.archive:
                pooch.retrieve(
                    self.url,
                    known_hash=self.archive,
                    path=self.path.parent,
                    fname=self.url.rpartition("/")[2],
                    processor=pooch.Untar(extract_dir=self.path.parent.resolve()),
                    downloader=download,
                )
                return
            for name, checksum in self.checksums.items():
                url = f"{self.url}/{name}"
                pooch.retrieve(url, known_hash=checksum, path=self.path, fname=name, downloader=download)
        except OSError as error:  # what the network raises is one, too
            raise CreditscopeError(
                f"Expected the files of task {self.task!r} in {self.path}, but they are not there and {self.url} "
                f"cannot be reached ({type(error).__name__}). Put {', '.join(self.checksums)} into that folder, or "
                "name another with --data-root or CREDITSCOPE_DATA."
            ) from error


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in ADMITTED.get(module, ()):
            raise CreditscopeError(f"it names {module}.{name}")
        moved = module.replace("scipy.sparse.csr", "scipy.sparse._csr").replace("numpy.core.", "numpy._core.")
        try:
            return super().find_class(moved, name)
        except ModuleNotFoundError:
            return super().find_class(module, name)


def read_pickle(path: Path) -> Any:
    """The arrays and containers in a (Python 2 or 3) pickle; any other name is refused before it is imported."""
    try:
        return _Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except CreditscopeError as error:
        raise CreditscopeError(
            f"Expected {path} to hold NumPy arrays, SciPy sparse matrices and plain containers only, but {error}. "
            "It was not run."
        ) from None
    except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, ImportError, IndexError, TypeError) as error:
        raise CreditscopeError(
            f"Expected a readable pickle in {path}, but it is damaged ({error}). Get it again."
        ) from error
