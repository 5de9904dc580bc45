"""Who writes a record: a lock that the system releases when its process ends."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

from creditscope.errors import CreditscopeError

LOCK = "lock"
BUSY = "another process is writing it"
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
"""What file systems without locks say."""


class BusyError(CreditscopeError):
    """A run that another process is writing."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """An advisory lock that the system releases when the process ends, however it ends; its file goes with it."""
    if fcntl is None:  # two writers are then the user's to avoid
        yield
        return
    while True:
        with open(path, "w") as file:
            if not try_lock(file):
                raise BusyError(
                    f"Expected run {path.parent.name} to be free, but {BUSY}. "
                    "Wait for it or choose another output folder."
                )
            if not _is_at(file, path):
                continue  # another process removed it between our opening it and our locking it
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def try_lock(file: IO[str]) -> bool:
    """Lock an open file, unless another process has; file systems without locks let everybody."""
    try:
        has_locks(file)
    except BlockingIOError:
        return False
    return True


def has_locks(file: IO[Any]) -> bool:
    """Lock an open file; False on systems, and file systems, that cannot."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def is_being_written(folder: Path) -> bool:
    """Whether another process has its lock."""
    try:
        with locked(folder / LOCK):
            return False
    except FileNotFoundError:  # its folder has gone: it is in a bundle by now
        return False
    except CreditscopeError:
        return True
