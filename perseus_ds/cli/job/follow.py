"""Follow a job's journal and state on standard error what happens, one line per step."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from perseus_ds.cli.output import remark
from perseus_ds.errors import PerseusError
from perseus_ds.files import open_ordinary
from perseus_ds.run_directory.events import parse_event

_LOOK_EVERY_S = 0.5
_MOST_BYTES = 16 << 20  # at one look


class Follower:
    """Reads what is appended to ``events.jsonl`` from now on, in a thread of its own.

    The job logs the events that have a ``line`` itself: they are not reported again.
    """

    def __init__(self, events: Path) -> None:
        self._events = events
        self._read = events.stat().st_size if events.exists() else 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="perseus-ds follow", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def fresh(self) -> Iterator[Mapping[str, object]]:
        """Yield the events that were appended since the last call; a half-written line waits."""
        try:
            if self._events.stat().st_size < self._read:
                self._read = 0  # the file was begun anew
            with os.fdopen(open_ordinary(self._events), "rb") as file:
                file.seek(self._read)
                text = file.read(_MOST_BYTES)
        except (OSError, PerseusError):
            return
        whole = text[: text.rfind(b"\n") + 1] if len(text) < _MOST_BYTES else text
        self._read += len(whole)
        for line in whole.splitlines():
            event = _event(line)
            if event is not None:
                yield event

    def _follow(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            self._say_fresh()
        self._say_fresh()

    def _say_fresh(self) -> None:
        for event in self.fresh():
            if "line" not in event:
                remark(in_words(event))


def in_words(event: Mapping[str, object]) -> str:
    """Put an event into one line; an unknown one by its name and facts."""
    name = str(event.get("event", "?"))
    if name == "profiling" and "total" in event:
        return f"profiling {event.get('clock_mhz')} MHz, {event.get('done')} of {event['total']} clocks"
    if "line" in event:
        return str(event["line"])
    facts = {key: value for key, value in event.items() if key not in {"time", "event"}}
    told = ", ".join(f"{key} {value}" for key, value in facts.items() if not isinstance(value, dict | list))
    return f"{name.replace('_', ' ')}{f': {told}' if told else ''}"


def _event(line: bytes) -> Mapping[str, object] | None:
    try:
        return parse_event(line)
    except PerseusError:
        return None
