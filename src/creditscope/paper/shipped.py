"""The records that ship with the repository, for whoever has none: what there is, and how it is got by checksum.

`shipped.toml` is made of results/ (docs/make.py): a table a folder, with the SHA-256 of every file in it.
"""

import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from creditscope.addresses import shipped
from creditscope.errors import CreditscopeError, one_of
from creditscope.record.files import digest_file

LISTED = Path(__file__).with_name("shipped.toml")


def list_shipped() -> dict[str, dict[str, str]]:
    """Folder → file → SHA-256."""
    return tomllib.loads(LISTED.read_text(encoding="utf-8"))


def write_list(results: Path) -> str:
    """`shipped.toml` of a folder of such folders."""
    lines = ["# Made by docs/make.py of results/: the SHA-256 of every file that `creditscope fetch` gets."]
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.rglob("*.jsonl*") if path.is_file())
        lines += ["", f"[{folder.name}]"]
        lines += [f'"{path.relative_to(folder).as_posix()}" = "{digest_file(path)}"' for path in files]
    return "\n".join(lines) + "\n"


def fetch(folder: str, out: Path, *, source: str = "") -> Iterator[tuple[Path, bool]]:
    """Get the files of a folder into OUT/FOLDER, each whole and unaltered or not at all: paths, and whether it was got.

    Those that are there are left as they are, so that what was interrupted goes on. `source` holds folders as results/
    does: another address, or a folder of this machine.
    """
    import pooch

    known = list_shipped()
    source, get = _find_source(source)
    for name, checksum in known[one_of("set of shipped records", folder, known)].items():
        path = out / folder / name
        if path.exists():
            _check(path, checksum)
            yield path, False
            continue
        address = f"{source}/{folder}/{name}"
        try:
            pooch.retrieve(address, f"sha256:{checksum}", fname=path.name, path=path.parent, downloader=get)
        except OSError as error:  # what the network raises is one, too
            raise CreditscopeError(
                f"Expected {address}, but it cannot be had ({_reason(error)}). Without a network, get "
                f"results/{folder} from the repository on another machine, and name the folder that holds {folder}: "
                f"creditscope fetch {folder} --from DIR."
            ) from error
        except ValueError:
            raise CreditscopeError(
                f"Expected {address} with SHA-256 {checksum}, but got other content, which was not kept. Use a source "
                f"of this version: {shipped()}."
            ) from None
        yield path, True


def _find_source(source: str) -> tuple[str, Callable[..., None]]:
    """The address or folder to get from, and how."""
    import pooch

    if not source or "://" in source:
        get: Any = pooch.HTTPDownloader(progressbar=True, timeout=20)
        return (source or shipped()).rstrip("/"), get
    return str(Path(source)), _copy


def _copy(source: str, file: Any, _: Any) -> None:
    with open(file, "wb") as out, open(source, "rb") as original:
        shutil.copyfileobj(original, out)


def _reason(error: OSError) -> str:
    status = getattr(getattr(error, "response", None), "status_code", "")
    return f"{type(error).__name__} {status}".strip()


def _check(path: Path, checksum: str) -> None:
    if (found := digest_file(path)) != checksum:
        raise CreditscopeError(
            f"Expected {path} with SHA-256 {checksum}, but got {found}: it is another version, or altered. Move it "
            "away, or choose another folder with --out."
        )
