"""The recipe for a rule in CONTRIBUTING.md, followed to the letter in a copy of the package."""

import os
import re
import shutil

import pytest
from builders import run_python
from documents import ROOT

pytestmark = pytest.mark.slow

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w/]+\.py)`:\n\n```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
RULE, TEST = "src/creditscope/rules/binary_dfa.py", "tests/rules/test_binary_dfa.py"
FOLLOW = """
import shlex, sys, pytest
from creditscope.cli import main
test, *commands = sys.argv[1:]
for command in commands:
    main(shlex.split(command)[1:])
    print("done", command)
raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", test]))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the package, with the files of the recipe and no other change."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_the_recipe_is_a_rule_and_its_test():
    assert list(FILES) == [RULE, TEST]
    assert [command.split()[1] for command in COMMANDS.splitlines()] == ["list", "run", "audit"]


def test_it_is_listed_trained_judged_and_tested(tree):
    """One seed, in one process, for speed."""
    listed, trained, judged = COMMANDS.splitlines()
    followed = ("-c", FOLLOW, TEST, listed, f"{trained} --seeds 1 --slots 1 --quiet", judged)
    done = run_python(*followed, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree / "src")})
    rules, runs, audit, tests = re.split("^done .*\n", done, flags=re.MULTILINE)
    assert re.search("^  binary_dfa +Direct feedback alignment with binary feedback", rules, re.MULTILINE)
    assert "binary DFA" in runs
    assert "binary DFA" in audit
    assert "2 passed" in tests
    (record,) = (tree / "out" / "records").iterdir()
    assert record.name.startswith("digits-resmlp-binary_dfa-s42-")


def test_it_keeps_the_style(tree):
    for check in (["check"], ["format", "--check"]):
        run_python("-m", "ruff", *check, "--no-cache", "--config", ROOT / "pyproject.toml", RULE, TEST, cwd=tree)


def test_what_is_named_is_there():
    """Files, folders and decorators of the page, those of the recipes' own aside."""
    own = re.compile(r"my_|csNNN|CSNNN|binary_dfa|path/to")
    named = [word for word in re.findall(r"`([\w./]+\.(?:py|md))`", PAGE) if not own.search(word)]
    missing = [word for word in named if not any((root / word).is_file() for root in (ROOT, ROOT / "src/creditscope"))]
    assert (len(named) > 20, missing) == (True, [])
    for name, module in re.findall(r"@(register_\w+)\(.*?\)`\s+from\s+`([\w.]+)`", PAGE):
        assert hasattr(__import__(module, fromlist=[name]), name)
    assert max(map(len, PAGE.splitlines())) <= 120
