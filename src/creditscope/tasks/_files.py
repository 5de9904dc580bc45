"""Data files of a task: looked for in the data folder, checked, and fetched from their home if they are missing."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError


def data_root() -> Path:
    """Where data files are looked for: CREDITSCOPE_DATA (set by --data-root), or a folder in the user's cache."""
    given = os.environ.get("CREDITSCOPE_DATA")
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else (Path(cache) if cache else Path.home() / ".cache") / "creditscope"


@dataclass(frozen=True)
class DataFiles:
    """The files of one data set: where they lie under the data folder, their checksums, and their home."""

    task: str
    folder: str
    checksums: Mapping[str, str]
    """File name → "md5:…" or "sha256:…"."""
    url: str
    """Where a file comes from: a folder (file names are added) or an archive of them."""
    archive: str = ""
    """Checksum of the archive, if `url` is one."""

    @property
    def path(self) -> Path:
        """The folder the files must lie in."""
        return data_root() / self.folder

    def present(self) -> bool:
        """Whether all of them are there (unchecked)."""
        return all((self.path / name).is_file() for name in self.checksums)

    def require(self) -> Path:
        """The folder, with every file in it and unaltered; fetched first if it is missing."""
        if not any((self.path / name).is_file() for name in self.checksums):
            _fetch(self)
        for name, checksum in self.checksums.items():
            check_file(self.path / name, checksum, home=self.url)
        return self.path


def check_file(path: Path, expected: str, *, home: str) -> None:
    """Refuse a file that is missing or not the one it should be."""
    if not path.is_file():
        raise CreditscopeError(f"Expected the data file {path}, but it is missing. Get it from {home}.")
    kind, _, digest = expected.partition(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, kind).hexdigest()
    if found != digest:
        raise CreditscopeError(
            f"Expected {path} with {kind} {digest}, but got {found} ({path.stat().st_size} bytes): it is "
            f"truncated or altered. Delete it and get it again from {home}."
        )


def _fetch(files: DataFiles) -> None:
    """Download with a progress bar; without a network, say so and name the folder to fill."""
    import pooch

    download: Any = pooch.HTTPDownloader(progressbar=True, timeout=20)
    try:
        if files.archive:
            pooch.retrieve(
                files.url,
                known_hash=files.archive,
                path=files.path.parent,
                fname=files.url.rpartition("/")[2],
                processor=pooch.Untar(extract_dir=files.path.parent.resolve()),
                downloader=download,
            )
            return
        for name, checksum in files.checksums.items():
            url = f"{files.url}/{name}"
            pooch.retrieve(url, known_hash=checksum, path=files.path, fname=name, downloader=download)
    except OSError as error:  # what the network raises is one, too
        raise CreditscopeError(
            f"Expected the files of task {files.task!r} in {files.path}, but they are not there and {files.url} "
            f"cannot be reached ({type(error).__name__}). Put {', '.join(files.checksums)} into that folder, or name "
            "another with --data-root or CREDITSCOPE_DATA."
        ) from error
