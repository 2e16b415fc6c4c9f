"""The journal of decisions: ``events.jsonl``, one object a line, appended by rank 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from perseus_ds.errors import PerseusError


def append_event(path: Path, event: str, facts: Mapping[str, object]) -> None:
    """Add one line: what happened, at which wall-clock time, and the facts that explain it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read_events(path: Path) -> list[dict[str, object]]:
    """Return all whole lines; a last line that is being written is left out.

    Raises:
        PerseusError: naming the file and the line that is not an event.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [_event(path, number, line) for number, line in enumerate(lines[:-1], start=1) if line]


def _event(path: Path, number: int, line: bytes) -> dict[str, object]:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise PerseusError(f"{path}: line {number} is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise PerseusError(f"{path}: line {number} is not an event")
    return event
