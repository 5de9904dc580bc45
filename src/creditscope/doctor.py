"""What a user needs to say when something does not work."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import creditscope
from creditscope.tasks._files import data_root

LIBRARIES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "mnist1d",
    "matplotlib",
    "xarray",
    "pydantic",
    "tyro",
    "rich",
)


def examine_machine() -> dict[str, str]:
    """Versions, devices, threads and folders, as text."""
    import torch

    from creditscope.train.pool import available_cores

    root = data_root()
    found = {
        "creditscope": creditscope.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
    }
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    found["devices"] = ", ".join(["cpu", *gpus])
    found["cores"] = str(available_cores())
    found["torch threads"] = f"{torch.get_num_threads()} (workers use 1 each)"
    found["data folder"] = f"{root} ({'found' if root.is_dir() else 'not there; embedded tasks need none'})"
    return found
