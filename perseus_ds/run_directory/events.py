"""The journal of decisions: ``events.jsonl``, one object a line, appended by rank 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path


def append_event(path: Path, event: str, facts: Mapping[str, object]) -> None:
    """Add one line: what happened, at which wall-clock time, and the facts that explain it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read_events(path: Path) -> list[dict[str, object]]:
    """Return all whole lines; a last line that is being written is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1] if line]
