"""Files for people (pages, cards, figures, captions): written whole, or not at all."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def write_whole(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Write files, in new folders too: all beside their places, then renamed, so that old ones stay if one fails.

    A pipe or a device is no place to rename to, and written as it stands.
    """
    parts: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            where = path
            if path.is_file() or not path.exists():
                place = path.resolve()  # a link stays one
                where = place.with_name(place.name + ".part")
                parts[where] = place
            # a name that is no text, of an oddly encoded path, say, is no reason to fail
            where.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
        for part, place in parts.items():
            os.replace(part, place)
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink()
    return list(files)
