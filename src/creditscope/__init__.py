"""creditscope: an instrument for credit assignment in deep networks.

Names are loaded on first use, so that `import creditscope` and the parts that only read records cost no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Audit": "creditscope.auditing",
    "ConversionReport": "creditscope.rules",
    "CreditContext": "creditscope.rules",
    "CreditscopeError": "creditscope.errors",
    "LearningContext": "creditscope.rules",
    "Runs": "creditscope.runs",
    "Scope": "creditscope.scope",
    "TapRule": "creditscope.rules",
    "Task": "creditscope.tasks",
    "Thresholds": "creditscope.auditing",
    "WeightRule": "creditscope.rules",
    "audit": "creditscope.auditing",
    "convert": "creditscope.scope",
    "load_records": "creditscope.record",
    "register_net": "creditscope.nets",
    "register_rule": "creditscope.rules",
    "register_task": "creditscope.tasks",
    "run": "creditscope.runs",
    "watch": "creditscope.scope",
}
"""Where each public name lives."""

__all__ = [
    "Audit",
    "ConversionReport",
    "CreditContext",
    "CreditscopeError",
    "LearningContext",
    "Runs",
    "Scope",
    "TapRule",
    "Task",
    "Thresholds",
    "WeightRule",
    "__version__",
    "audit",
    "convert",
    "load_records",
    "register_net",
    "register_rule",
    "register_task",
    "run",
    "watch",
]

if TYPE_CHECKING:
    from creditscope.auditing import Audit, Thresholds, audit
    from creditscope.errors import CreditscopeError
    from creditscope.nets import register_net
    from creditscope.record import load_records
    from creditscope.rules import ConversionReport, CreditContext, LearningContext, TapRule, WeightRule, register_rule
    from creditscope.runs import Runs, run
    from creditscope.scope import Scope, convert, watch
    from creditscope.tasks import Task, register_task


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'creditscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
