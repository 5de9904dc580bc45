"""README for index pages: what it links to in the repository gets its address there, at this version."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"```.*?```|`[^`\n]*`|(!?)(\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)", re.DOTALL)
"""Code, which stays as it is, or a link to a file, or an image."""


class Readme(MetadataHookInterface):
    """Fills in the field `readme`, which is dynamic in pyproject.toml."""

    def update(self, metadata: dict) -> None:
        home, tag = metadata["urls"]["Source"], f"v{metadata['version']}"

        def absolute(link: re.Match) -> str:
            if not link[3]:
                return link[0]
            return f"{link[1]}{link[2]}({home}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})"

        text = LINK.sub(absolute, (Path(self.root) / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
