"""creditscope: an instrument for credit assignment in deep networks.

Names are loaded on first use, so that `import creditscope` and the parts that only read records cost no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "CreditContext": "creditscope.rules",
    "TapRule": "creditscope.rules",
    "WeightRule": "creditscope.rules",
    "register_rule": "creditscope.rules",
    "register_net": "creditscope.nets",
    "register_task": "creditscope.tasks",
    "Task": "creditscope.tasks",
}

__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:
    from creditscope.nets import register_net
    from creditscope.rules import CreditContext, TapRule, WeightRule, register_rule
    from creditscope.tasks import Task, register_task


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'creditscope' has no attribute {name!r}")
