"""creditscope: an instrument for credit assignment in deep networks.

`run` trains, `attach` puts a rule into a training loop of yours, `watch` looks at a model of yours, `audit` judges;
`help` tells of each public name. They are loaded on first use, so that `import creditscope` and the parts that only
read records cost no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from creditscope.auditing import Audit, Thresholds, audit
    from creditscope.errors import CreditscopeError
    from creditscope.find_taps import TapChoice, suggest_taps
    from creditscope.nets import register_net
    from creditscope.record import load_records
    from creditscope.rules import (
        ConversionReport,
        Credit,
        CreditContext,
        Layer,
        TapRule,
        WeightRule,
        register_feedback,
        register_rule,
        restore,
    )
    from creditscope.runs import Runs, run
    from creditscope.scope import Scope, convert, watch
    from creditscope.tasks import Task, register_task
    from creditscope.trainer import Trainer, attach
else:  # unseen by type checkers, for which any misspelt name would be right

    def __getattr__(name: str) -> Any:
        for home in _HOMES if name in __all__ else ():
            module = import_module(f"creditscope.{home}")
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module 'creditscope' has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "Audit",
    "ConversionReport",
    "Credit",
    "CreditContext",
    "CreditscopeError",
    "Layer",
    "Runs",
    "Scope",
    "TapChoice",
    "TapRule",
    "Task",
    "Thresholds",
    "Trainer",
    "WeightRule",
    "__version__",
    "attach",
    "audit",
    "convert",
    "load_records",
    "register_feedback",
    "register_net",
    "register_rule",
    "register_task",
    "restore",
    "run",
    "suggest_taps",
    "watch",
]

_HOMES = ("errors", "tasks", "nets", "record", "auditing", "runs", "rules", "find_taps", "scope", "trainer")
"""Modules of the public names, those that import torch last: a name is that of the first which has it."""


def __dir__() -> list[str]:
    return __all__
