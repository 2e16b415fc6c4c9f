"""Files that a reader finds whole: the old one or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace ``path`` by a file with ``text`` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def write_json(path: Path, content: object) -> None:
    """Replace ``path`` by ``content`` as JSON that a person can read."""
    write_whole(path, json.dumps(content, indent=1) + "\n")
