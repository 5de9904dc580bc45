"""Read data that come as pickles without running what a pickle can run.

Only NumPy arrays, SciPy sparse matrices and plain containers are admitted; any other name in the file is
refused before it is imported or called.
"""

import io
import pickle
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError

ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("scipy.sparse.csr", "csr_matrix"),
    ("scipy.sparse._csr", "csr_matrix"),
    ("collections", "defaultdict"),
    ("__builtin__", "list"),
    ("builtins", "list"),
    ("__builtin__", "object"),
    ("copy_reg", "_reconstructor"),
    ("_codecs", "encode"),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise CreditscopeError(f"it names {module}.{name}")
        moved = module.replace("scipy.sparse.csr", "scipy.sparse._csr").replace("numpy.core.", "numpy._core.")
        try:
            return super().find_class(moved, name)
        except ModuleNotFoundError:
            return super().find_class(module, name)


def read_pickle(path: Path) -> Any:
    """The arrays and containers in a (Python 2 or 3) pickle; anything else is refused."""
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
