"""The page on rules shows a rule as it is: what may be set, what is called with what, and what a context holds."""

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path

import creditscope as cs

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")


def shown_class() -> ast.ClassDef:
    (found,) = ast.parse(re.findall(r"```python\n(class .*?)```", PAGE, re.DOTALL)[0]).body
    assert isinstance(found, ast.ClassDef)
    return found


def test_what_it_sets_is_there():
    names = [target.id for node in shown_class().body if isinstance(node, ast.Assign) for target in node.targets]
    assert len(names) == 9
    assert [name for name in names if not hasattr(cs.TapRule, name)] == []


def test_its_methods_are_called_as_shown():
    shown = {node.name: [a.arg for a in node.args.args] for node in shown_class().body if hasattr(node, "args")}
    assert shown.pop("__init__") == ["self"]
    assert shown == {name: list(inspect.signature(getattr(cs.TapRule, name)).parameters) for name in shown}
    assert len(shown) == 4


def test_every_field_of_a_context_is_in_the_table():
    table = PAGE.partition("`ctx` holds")[2].partition("\n\nCredit is per sample")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == [field.name for field in fields(cs.CreditContext)]
