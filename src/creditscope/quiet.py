"""A model by itself: inside, hooks of the user are silent, checkpoints keep what they compute, nothing is compiled.

A hook that only logs would log passes that are no training; a checkpoint would compute the forward again in the
backward, when taps, copies of buffers and float64 weights are gone; a compiled module would compile hooks in.
"""

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as registry
from torch.utils import checkpoint

OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_ALL = tuple(f"_global{name}" for name in OF_MODULES)
MAKERS = ("torch.", "creditscope.")
"""Packages whose hooks are part of what a module computes (weight norm, pruning, lazy shapes)."""


@contextmanager
def by_itself(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, these modules compute what they compute, and nothing else happens; all is as before after it."""
    with ExitStack() as stack:
        stack.enter_context(silent_hooks(modules))
        stack.enter_context(_plain_checkpoints())
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and importing it takes seconds
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextmanager
def silent_hooks(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, hooks of modules, of their parameters and of all modules are not called, but for torch's own."""
    held = [hooks for name in OF_ALL if (hooks := getattr(registry, name, None))]
    for module in modules:
        held += [hooks for name in OF_MODULES if (hooks := getattr(module, name, None))]
        held += [hooks for p in module._parameters.values() if p is not None and (hooks := p._backward_hooks)]
    before = [(hooks, dict(hooks)) for hooks in {id(hooks): hooks for hooks in held}.values()]
    try:
        for hooks, own in before:  # emptied in place: handles know these very dictionaries
            for key, hook in own.items():
                if not _home(hook).startswith(MAKERS):
                    del hooks[key]
        yield
    finally:
        for hooks, own in before:  # what a pass itself took away (a lazy layer's hook) or added stays so
            left = dict(hooks)
            hooks.clear()
            hooks.update({key: hook for key, hook in own.items() if key in left or not _home(hook).startswith(MAKERS)})
            hooks.update({key: hook for key, hook in left.items() if key not in own})


def _home(hook: Any) -> str:
    """The module in which a hook was written."""
    function = getattr(hook, "func", hook)  # of a partial
    return f"{getattr(function, '__module__', None) or type(function).__module__}."


@contextmanager
def _plain_checkpoints() -> Iterator[None]:
    """Inside, both kinds of `torch.utils.checkpoint` call their function, and that is all.

    By the names that `checkpoint` looks up when it is called, since models hold the function itself.
    """
    function, generator = checkpoint.CheckpointFunction, "_checkpoint_without_reentrant_generator"
    before = getattr(checkpoint, generator, None)

    def once(*_: Any, **__: Any) -> Iterator[None]:
        yield

    function.apply = staticmethod(lambda run, preserve, *arguments: run(*arguments))  # pyright: ignore[reportAttributeAccessIssue]
    if before is not None:
        setattr(checkpoint, generator, once)
    try:
        yield
    finally:
        if "apply" in vars(function):
            del function.apply
        if before is not None:
            setattr(checkpoint, generator, before)
