"""Names to things: a file in a package is an entry, and outsiders add theirs by decorator or entry point.

`rules/dfa.py` is the rule "dfa": adding a file adds a rule and nothing else is edited. Listing names
and summaries reads files without importing them, so it costs no torch.
"""

import ast
import hashlib
import importlib
import inspect
import pkgutil
import secrets
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from creditscope.errors import CreditscopeError, UnknownNameError

T = TypeVar("T")


def text_digest(text: str) -> str:
    """A short digest of source text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Registry:
    """The names of one kind of thing (`kind`), found in `package` and in the entry points of that name."""

    def __init__(self, kind: str, package: str):
        self.kind = kind
        self.package = package
        self._registered: dict[str, Any] = {}
        self._unreadable: dict[str, str] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that makes a class or a function known by `name`; in a file of its package it is the file's name.

        >>> from creditscope.registry import Registry
        >>> figures = Registry("figure", "creditscope.figures")
        >>> @figures.register("empty")
        ... def plot_empty(records): ...
        >>> figures.get("empty") is plot_empty
        True
        """

        def keep(thing: T) -> T:
            if name in self._files() and getattr(thing, "__module__", "") != f"{self.package}.{name}":
                raise CreditscopeError(
                    f"Expected a new name for a {self.kind}, but {name!r} is a built-in one. Choose another name."
                )
            self._registered[name] = thing
            self._unreadable.pop(name, None)
            return thing

        return keep

    def names(self) -> list[str]:
        """Every known name: files of the package, registered things, entry points."""
        outside = {point.name for point in entry_points(group=self.package)}
        return sorted({*self._files(), *self._registered, *outside})

    def get(self, name: str) -> Any:
        """The thing called `name`; importing its file on the first use."""
        if name not in self._registered:
            if name in self._files():
                importlib.import_module(f"{self.package}.{name}")
                if name not in self._registered:
                    raise CreditscopeError(
                        f"Expected {self.package}.{name} to register the {self.kind} {name!r}, but it does not. "
                        f'Add the decorator @register_{self.kind}("{name}").'
                    )
            else:
                for point in entry_points(group=self.package, name=name):
                    self._registered[name] = point.load()
        if name not in self._registered:
            raise UnknownNameError(self.kind, name, self.names())
        return self._registered[name]

    def is_built_in(self, name: str) -> bool:
        """Whether `name` is one of the files that ship with the package."""
        return name in self._files()

    def source(self, name: str) -> str:
        """A digest of a user's own thing, so that an edited one is told from the one before; empty if built in.

        Without readable source (typed into a prompt) every registration is one of its own, the same for all its seeds.
        """
        if self.is_built_in(name):
            return ""
        try:
            return text_digest(inspect.getsource(self.get(name)))
        except (OSError, TypeError):
            return self._unreadable.setdefault(name, f"unknown-{secrets.token_hex(8)}")

    def is_local(self, name: str) -> bool:
        """Whether `name` is known in this process alone, through a decorator in the user's own code."""
        return not self.is_built_in(name) and not entry_points(group=self.package, name=name)

    def summary(self, name: str) -> str:
        """The first line of the entry's docstring, read without importing the file."""
        if name in self._files():
            source = (self._folder() / f"{name}.py").read_text(encoding="utf-8")
            text = ast.get_docstring(ast.parse(source)) or ""
        else:
            text = getattr(self.get(name), "__doc__", "") or ""
        return text.strip().split("\n")[0]

    def defaults(self, name: str) -> dict[str, Any]:
        """Options of a built-in entry with their plain defaults, read without importing the file; none of others."""
        if name not in self._files():
            return {}
        tree = ast.parse((self._folder() / f"{name}.py").read_text(encoding="utf-8"))
        entry = next((node for node in tree.body if _is_registered(node)), None)
        if isinstance(entry, ast.ClassDef):
            entry = next((node for node in entry.body if getattr(node, "name", "") == "__init__"), None)
        if not isinstance(entry, ast.FunctionDef):
            return {}
        pairs = zip(entry.args.kwonlyargs, entry.args.kw_defaults, strict=True)
        return {option.arg: value.value for option, value in pairs if isinstance(value, ast.Constant)}

    def _folder(self) -> Path:
        root = Path(__file__).parent
        return root.joinpath(*self.package.split(".")[1:])

    def _files(self) -> list[str]:
        return [m.name for m in pkgutil.iter_modules([str(self._folder())]) if not m.name.startswith("_")]


def _is_registered(node: ast.AST) -> bool:
    """Whether a definition has a decorator called register_…."""
    calls = [call.func for call in getattr(node, "decorator_list", ()) if isinstance(call, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id.startswith("register_") for call in calls)


TASKS = Registry("task", "creditscope.tasks")
NETS = Registry("net", "creditscope.nets")
RULES = Registry("rule", "creditscope.rules")
CHECKS = Registry("check", "creditscope.auditing.checks")
STUDIES = Registry("study", "creditscope.studies")
FIGURES = Registry("figure", "creditscope.figures")
EXPORTS = Registry("export", "creditscope.exports")
