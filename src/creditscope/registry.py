"""Names to things: a file in a package is an entry, and outsiders add theirs by decorator or entry point.

`rules/dfa.py` is the rule "dfa": adding a file adds a rule and nothing else is edited. An entry point is one thing
(`mine = "my_lab.rules:Mine"`) or a package whose files are entries (`my_lab = "my_lab.rules"`). Listing names and
summaries reads files without importing them, so it costs no torch. A rule or a net may also be named by its file,
`path/to/file.py:Class`, or be the class itself.
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import secrets
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from creditscope.errors import CreditscopeError, UnknownNameError

T = TypeVar("T")


def text_digest(text: str) -> str:
    """A short digest of source text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _run_file(file: Path, source: bytes) -> ModuleType:
    """A user's file as a module, run once for each content; it may import from its own folder."""
    module = ModuleType(f"creditscope_user_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(file.parent))
    try:
        exec(compile(source, str(file), "exec"), vars(module))
    except Exception as error:
        raise CreditscopeError(
            f"Expected {file} to be a Python file that can be imported, but it failed: {type(error).__name__}: {error}."
        ) from error
    finally:
        sys.path.remove(str(file.parent))
    return module


class Registry:
    """The names of one kind of thing (`kind`): files of `package`, if there is one, and entry points of that group.

    With `own_files` also things in users' files; the package then has a function `check_<kind>` that refuses others.
    """

    def __init__(self, kind: str, package: str, *, own_files: bool = False):
        self.kind = kind
        self.package = package
        self.own_files = own_files
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
            home = self._homes().get(name)
            if home and getattr(thing, "__module__", "") != f"{home}.{name}":
                raise CreditscopeError(
                    f"Expected a new name for a {self.kind}, but {name!r} is a built-in one. Choose another name."
                )
            self._registered[name] = thing
            self._unreadable.pop(name, None)
            return thing

        return keep

    def names(self) -> list[str]:
        """Every known name: files of packages, registered things, entry points."""
        return sorted({*self._homes(), *self._registered, *(point.name for point in self._points())})

    def get(self, name: str) -> Any:
        """The thing called `name`, importing its file on the first use; or the one in `path/to/file.py:Class`."""
        if self.own_files and (":" in name or name.endswith(".py")):
            return self._from_file(name)
        if name not in self._registered:
            home = self._homes().get(name)
            try:
                if home:
                    importlib.import_module(f"{home}.{name}")
                for point in () if home else self._points(name):
                    self._registered[name] = point.load()
            except Exception as error:
                if home == self.package or isinstance(error, CreditscopeError):
                    raise
                raise CreditscopeError(
                    f"Expected the {self.kind} {name!r} of an extension to be importable, but it fails: {error!r}."
                ) from error
            if name not in self._registered and home:
                raise CreditscopeError(
                    f"Expected {home}.{name} to register the {self.kind} {name!r}, but it does not. "
                    f'Add the decorator @register_{self.kind}("{name}").'
                )
        if name not in self._registered:
            raise UnknownNameError(self.kind, name, self.names())
        return self._registered[name]

    def name_of(self, thing: Any) -> str:
        """The name of a thing that is given by name or as a class; a new class is made known by its own name."""
        if isinstance(thing, str):
            return thing
        if not isinstance(thing, type):
            raise CreditscopeError(
                f"Expected a {self.kind} as a name, as path/to/file.py:Class or as a class, but got {thing!r}. Pass "
                f"its class, and its options as {self.kind}_options={{…}}."
            )
        for name, known in self._registered.items():
            if known is thing:
                return name
        self._in_package("register")(thing.__name__)(thing)
        return thing.__name__

    def is_built_in(self, name: str) -> bool:
        """Whether `name` is one of the files that ship with the package."""
        return self._homes().get(name) == self.package

    def source(self, name: str) -> str:
        """A digest of a user's own thing, so that an edited one is told from the one before; empty if built in.

        A thing in a user's file is told by the whole file. Without readable source (typed into a prompt) every
        registration is one of its own, the same for all its seeds.
        """
        if self.is_built_in(name):
            return ""
        if ":" in name:
            return text_digest(Path(name.rpartition(":")[0]).read_text(encoding="utf-8"))
        try:
            return text_digest(inspect.getsource(self.get(name)))
        except (OSError, TypeError):
            return self._unreadable.setdefault(name, f"unknown-{secrets.token_hex(8)}")

    def is_local(self, name: str) -> bool:
        """Whether `name` is known in this process alone, through a decorator in the user's own code."""
        return ":" not in name and name not in self._homes() and not self._points(name)

    def summary(self, name: str) -> str:
        """The first line of the entry's docstring, read without importing the file."""
        if file := self._file(name):
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        else:
            text = getattr(self.get(name), "__doc__", "") or ""
        return text.strip().split("\n")[0]

    def defaults(self, name: str) -> dict[str, Any]:
        """Options of a built-in entry with their plain defaults, read without importing the file; none of others."""
        if not (file := self._file(name)):
            return {}
        tree = ast.parse(file.read_text(encoding="utf-8"))
        entry = next((node for node in tree.body if _is_registered(node)), None)
        if isinstance(entry, ast.ClassDef):
            entry = next((node for node in entry.body if getattr(node, "name", "") == "__init__"), None)
        if not isinstance(entry, ast.FunctionDef):
            return {}
        pairs = zip(entry.args.kwonlyargs, entry.args.kw_defaults, strict=True)
        return {option.arg: value.value for option, value in pairs if isinstance(value, ast.Constant)}

    def _from_file(self, name: str) -> Any:
        path, _, attribute = name.rpartition(":")
        if name.endswith(".py"):
            raise CreditscopeError(
                f"Expected the class too, as in {name}:My{self.kind.capitalize()}, but got {name!r}."
            )
        file = Path(path)
        if not file.is_file():
            raise CreditscopeError(f"Expected a file with the {self.kind} {attribute!r}, but {path!r} does not exist.")
        module, check = _run_file(file.resolve(), file.read_bytes()), self._in_package("check")
        if not hasattr(module, attribute):
            there = []
            for other, thing in vars(module).items():
                with suppress(CreditscopeError):
                    if isinstance(thing, type) and check(other, thing) is None:
                        there.append(other)
            raise CreditscopeError(
                f"Expected {file} to define a {self.kind} class {attribute!r}, but got nothing of that name. "
                f"{self.kind.capitalize()} classes there: {', '.join(there) or 'none'}."
            )
        thing = getattr(module, attribute)
        check(attribute, thing)
        return thing

    def _in_package(self, verb: str) -> Callable[..., Any]:
        """`register_rule`, `check_net` and so on."""
        return getattr(importlib.import_module(self.package), f"{verb}_{self.kind}")

    def _file(self, name: str) -> Path | None:
        """The file of an entry, if it is a file of a package."""
        folder = _folder(self._homes().get(name, ""))
        return folder / f"{name}.py" if folder else None

    def _homes(self) -> dict[str, str]:
        """Packages by the names of the files in them: those that entry points name, and our own."""
        return _packaged(self.package)

    def _points(self, name: str = "") -> list[EntryPoint]:
        """Entry points that are one thing each: all, or those of a name."""
        return [point for point in _things(self.package, tuple(sys.path)) if name in ("", point.name)]


@cache
def _things(own: str, path: tuple[str, ...]) -> list[EntryPoint]:
    """Looked up once for a path: a report asks for the checks a thousand times."""
    return [point for point in entry_points(group=own) if point.attr]


@cache
def _packaged(own: str) -> dict[str, str]:
    """Looked up once: a plan of thousands of runs asks for each."""
    packages = [point.value for point in entry_points(group=own) if not point.attr]
    folders = {package: folder for package in (*packages, own) if (folder := _folder(package))}
    files = [(m.name, package) for package, folder in folders.items() for m in pkgutil.iter_modules([str(folder)])]
    return {name: package for name, package in files if not name.startswith("_")}


def _folder(package: str) -> Path | None:
    """Where a package lies, if it is there and can be found; only the packages above it are imported."""
    wrong = ""
    try:
        found = importlib.util.find_spec(package) if package else None
        if found and found.submodule_search_locations:
            return Path(found.submodule_search_locations[0])
        if found:
            wrong = f"got a module. Name one thing in it: {package}:Thing."
    except ModuleNotFoundError:
        pass
    except Exception as error:  # of a package above it: one that is broken shall not cost all others
        wrong = f"it fails: {error!r}."
    if wrong:
        warnings.warn(f"Expected a package {package} with entries, but {wrong}", stacklevel=2)
    return None


def _is_registered(node: ast.AST) -> bool:
    """Whether a definition has a decorator called register_…."""
    calls = [call.func for call in getattr(node, "decorator_list", ()) if isinstance(call, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id.startswith("register_") for call in calls)


TASKS = Registry("task", "creditscope.tasks")
NETS = Registry("net", "creditscope.nets", own_files=True)
RULES = Registry("rule", "creditscope.rules", own_files=True)
CHECKS = Registry("check", "creditscope.auditing.checks")
COMMANDS = Registry("command", "creditscope.commands")
STUDIES = Registry("study", "creditscope.studies")
FIGURES = Registry("figure", "creditscope.figures")
EXPORTS = Registry("export", "creditscope.exports")
"""Of studies and figures there are none of our own: extensions bring them."""
