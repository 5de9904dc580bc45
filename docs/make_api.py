"""Write docs/api.md from the signatures and docstrings of the public names; nothing is imported.

Example: python docs/make_api.py
"""

import ast
import re
from pathlib import Path

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src"
WIDTH = 110
HEAD = """# Public names

Made from docstrings by `make docs`; the tests run every example. `import creditscope as cs` costs no
torch, because names are loaded when they are used. Words are those of [architecture.md](architecture.md), the fields of
a snapshot those of [measurements.md](measurements.md); [CONTRIBUTING.md](../CONTRIBUTING.md) tells where files go.
"""
SECTIONS = {
    "Train, watch, judge": {
        "creditscope": "run Runs attach Trainer watch suggest_taps TapChoice Scope convert ConversionReport "
        "audit Audit Thresholds load_records CreditscopeError",
        "creditscope.record": "Record",
    },
    "In loops and loggers that you have": {
        "creditscope.integrations.lightning": "ScopeCallback",
        "creditscope.integrations.transformers": "ScopeCallback",
        "creditscope.integrations.tensorboard": "TensorBoardWriter",
        "creditscope.integrations.wandb": "WandbWriter",
    },
    "Draw any records": {
        "creditscope.plots": "overview pair credit sizes over_epochs ladder verdicts "
        "forest Estimate save_figure Caption Statement",
        "creditscope.record.pick": "pick",
    },
    "To add a rule": {
        "creditscope": "register_rule TapRule CreditContext Credit WeightRule Layer register_feedback restore",
        "creditscope.rules": "Rule",
        "creditscope.testing": "assert_rule",
    },
    "To add a net": {"creditscope": "register_net"},
    "To add a task": {"creditscope": "register_task Task", "creditscope.tasks": "GraphTask ImageSettings"},
    "To add a measurement": {"creditscope.measure.instruments": "Instrument"},
    "To add a check": {
        "creditscope.auditing.checks": "register_check RunCheck SeedsCheck MethodCheck Check",
        "creditscope.auditing": "Finding",
    },
    "To add a figure": {
        "creditscope.paper.figures": "register_figure",
        "creditscope.paper.studies": "register_study Study choose_scale",
    },
    "To add an export": {
        "creditscope.exports": "Written",
        "creditscope.paper.exports": "register_export Export",
    },
    "To add a command": {"creditscope.commands": "register_command"},
}
"""What the page holds, in order: names by the module to import them from."""
Definition = ast.ClassDef | ast.FunctionDef


def make_page() -> str:
    """The page as text."""
    parts = [HEAD, list_contents()]
    for title, modules in SECTIONS.items():
        entries = [describe(module, name) for module, names in modules.items() for name in names.split()]
        parts += [f"## {title}\n", *entries]
    return "\n".join(parts)


def list_contents() -> str:
    """The sections, with their names."""
    lines = []
    for title, modules in SECTIONS.items():
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        names = " ".join(modules.values()).split()
        lines.append(f"- [{title}](#{anchor}): {', '.join(f'`{name}`' for name in names)}\n")
    return "".join(lines)


def describe(module: str, name: str) -> str:
    """One entry: heading, signature, docstring, and the parts of a class."""
    node = find(module, name)
    text = f"### `{module}.{name}`\n\n{fence(signature(node, name))}\n{to_markdown(ast.get_docstring(node) or '')}"
    parts = [*list_fields(node), *list_methods(node)] if isinstance(node, ast.ClassDef) else []
    return "\n".join([text, *parts]) + "\n" * bool(parts)


def find(module: str, name: str) -> Definition:
    """Where a name is defined, followed through imports; `register_… = REGISTRY.register` is that method."""
    path = SOURCE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return find(node.module, name)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return find("creditscope.registry", ast.unparse(node.value).rpartition(".")[2])
    raise LookupError(f"Expected {module} to define or import {name}, but it does not.")


def signature(node: Definition, name: str) -> str:
    """As it is written, on one line or with a line for each argument."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {name}({bases})" if bases else f"class {name}"
    arguments = list_arguments(node.args)
    gives = f" -> {unquoted(node.returns)}" if node.returns else ""
    line = f"{name}({', '.join(arguments)}){gives}"
    return line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {a}," for a in arguments), f"){gives}"])


def list_arguments(given: ast.arguments) -> list[str]:
    """Arguments with their types and defaults, `self` left out."""
    plain = list(zip(given.args, [None] * (len(given.args) - len(given.defaults)) + given.defaults, strict=True))
    named = list(zip(given.kwonlyargs, given.kw_defaults, strict=True))
    found = [typed(argument, default) for argument, default in plain if argument.arg != "self"]
    found += [f"*{typed(given.vararg)}"] if given.vararg else ["*"] * bool(named)
    found += [typed(argument, default) for argument, default in named]
    return found + ([f"**{typed(given.kwarg)}"] if given.kwarg else [])


def typed(argument: ast.arg, default: ast.expr | None = None) -> str:
    """An argument as it is written."""
    kind = f": {unquoted(argument.annotation)}" if argument.annotation else ""
    return argument.arg + kind + (f" = {unquoted(default, keep=True)}" if default else "")


def unquoted(node: ast.expr, *, keep: bool = False) -> str:
    """Source text with double quotes; without any around a whole type, unless they are kept."""
    text = ast.unparse(node).replace("'", '"')
    return text if keep else text.strip('"')


def to_markdown(docstring: str) -> str:
    """The prose as it is, examples as blocks of code."""
    return re.sub(r"(?m)^>>> (?:.+\n?)+", lambda block: fence(block[0]), docstring).rstrip() + "\n"


def fence(code: str) -> str:
    """A block of Python."""
    return f"```python\n{code.rstrip()}\n```\n"


def list_fields(node: ast.ClassDef) -> list[str]:
    """Attributes of a class: those without a docstring on one line, then each of the others."""
    plain, found = [], []
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            kind = re.sub(r"^ClassVar\[(.*)\]$", r"\1", unquoted(field.annotation))
            default = f" = {unquoted(field.value, keep=True)}" if isinstance(field.value, ast.Constant) else ""
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            shown = f"`{ast.unparse(field.target)}: {kind}{default}`"
            (found if said else plain).append(f"{shown}: {' '.join(str(said).split())}" if said else shown)
    return [f"- {line}" for line in ([", ".join(plain)] if plain else []) + found]


def list_methods(node: ast.ClassDef) -> list[str]:
    """Public methods and properties of a class, with their docstrings."""
    found = []
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            is_property = "property" in map(ast.unparse, method.decorator_list)
            shown = method.name if is_property else f"{method.name}({', '.join(list_arguments(method.args))})"
            gives = f" -> {unquoted(method.returns)}" if method.returns and unquoted(method.returns) != "None" else ""
            said = (ast.get_docstring(method) or "").partition(">>>")[0]
            found.append(f"- `.{shown}{gives}`: {' '.join(said.split())}")
    return found


if __name__ == "__main__":
    (DOCS / "api.md").write_text(make_page(), encoding="utf-8")
