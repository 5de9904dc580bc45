"""What a user's own code has registered in this process, for workers that do not know it."""

import base64
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import cloudpickle

from creditscope.errors import CreditscopeError
from creditscope.record.files import first_words
from creditscope.record.spec import RunSpec
from creditscope.registry import NETS, RULES, TASKS

MOST_BYTES = 2**24


class CannotSendError(CreditscopeError):
    """What is defined in this process cannot be had in another."""


def pickle_local(specs: Iterable[RunSpec]) -> str:
    """What only this process knows of what runs are made of, by value; empty if nothing."""
    found: dict[tuple[str, str], Any] = {}
    for spec in specs:
        for registry, name in ((RULES, spec.rule), (NETS, spec.net), (TASKS, spec.task)):
            if registry.is_local(name):
                found[registry.kind, name] = registry.get(name)
    if not found:
        return ""
    modules = {sys.modules[thing.__module__] for thing in found.values() if thing.__module__ in sys.modules}
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        sent = cloudpickle.dumps(found)
    except Exception as error:
        raise CannotSendError(f"Expected a definition that can be pickled, but {first_words(error)}.") from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    if len(sent) > MOST_BYTES:
        raise CannotSendError(f"Expected a definition of at most {MOST_BYTES} bytes, but got {len(sent)}.")
    return base64.b64encode(sent).decode()


@cache
def define(text: str) -> None:
    """Make known what `pickle_local` has sent."""
    registries = {registry.kind: registry for registry in (RULES, NETS, TASKS)}
    for (kind, name), thing in cloudpickle.loads(base64.b64decode(text)).items():
        registries[kind].register(name)(thing)
