"""Steps in which feedback alone is learned, at weights that stay."""

from typing import Any

import torch

from creditscope.losses import errors_function
from creditscope.rules import AppliedRule
from creditscope.taps import watch_forward


def learn_once(applied: AppliedRule, inputs: Any, target: Any = None, mask: Any = None) -> None:
    forward = watch_forward(applied.net, applied.anatomy.taps, inputs)
    if target is None:
        target = torch.zeros(forward.output.shape[-2], dtype=torch.int64)
    errors = errors_function(applied.net, target, mask=mask)(forward.output)
    applied.learn(forward, errors, torch.zeros_like(forward.states[-1]))
