"""Where the project lives: every address that a message, a page or a download has comes from here.

A wheel has no docs/ and no results/, so what it says of them holds from anywhere: addresses are those of this version.
"""

import creditscope

HOME = "https://github.com/creditscope/creditscope"
"""As `[project.urls]` of pyproject.toml has it, for index pages."""


def manual(page: str) -> str:
    """The address of a page of the manual.

    >>> manual("checks/CS001.md").removeprefix(HOME)
    '/blob/v.../docs/checks/CS001.md'
    """
    return f"{HOME}/blob/v{creditscope.__version__}/docs/{page}"


def shipped(name: str = "") -> str:
    """The address of the records that ship with the repository, or of a file of them.

    >>> shipped("demo/demo.jsonl.xz").removeprefix(HOME)
    '/raw/v.../results/demo/demo.jsonl.xz'
    """
    return f"{HOME}/raw/v{creditscope.__version__}/results/{name}".rstrip("/")
