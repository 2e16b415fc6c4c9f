"""The journal in words: one readable line per event, one row per straggler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perseus_ds.config import AUTOMATIC

Event = Mapping[str, object]

MOST_LINES = 500
"""Of events, and of stragglers, on a page; the file has all."""
STRAGGLER_HEADER = ("from", "to", "who", "meet at", "events")


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One event: when (UTC), what, and the facts that explain it."""

    time: str
    event: str
    facts: str


def journal_lines(events: Iterable[Mapping[str, object]]) -> Iterator[JournalLine]:
    """Put every event into words, unknown ones too."""
    for event in events:
        yield JournalLine(clock_of(event.get("time")), str(event.get("event", "?")), in_words(event))


def in_words(event: Mapping[str, object]) -> str:
    """Return the line that the job printed for the event, else its facts."""
    if "line" in event:
        return str(event["line"])
    return facts_in_words({key: value for key, value in event.items() if key not in {"time", "event"}})


def facts_in_words(facts: Mapping[str, object]) -> str:
    """Return ``name value, name value``."""
    return ", ".join(" ".join(row) for row in fact_rows(facts))


def fact_rows(facts: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield names and values for reading; the unit moves from the end of a name behind its number."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            words = name.replace("_", " ")
            yield from ((f"{words}, {inner}", text) for inner, text in fact_rows(value))
            continue
        ending = next((one for one in _UNITS if name.endswith(one)), "")
        unit = "" if value is None or isinstance(value, str | bool) else _UNITS.get(ending, "")
        yield name.removesuffix(ending).replace("_", " "), _shown(value) + unit


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({facts_in_words(value)})"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.5g}" if isinstance(value, float) else _AUTO.sub(AUTOMATIC, str(value))


_AUTO = re.compile(r"\bauto\b")  # the word of records, which users write in full
_UNITS = {"_s": " s", "_j": " J", "_w": " W", "_mhz": " MHz", "_pct": " %", "_us": " us", "_ms": " ms"}


def clock_of(time: object) -> str:
    """Return HH:MM:SS of an ISO time; anything else as it stands."""
    text = str(time or "")
    return text[11:19] if len(text) >= len("2025-01-01T00:00:00") else text


def straggler_rows(events: Sequence[Event]) -> list[list[str]]:
    """Join each straggler's appearance, changes and end to one row."""
    return [list(row) for row in _rows(events)]


def _rows(events: Sequence[Event]) -> Iterator[tuple[str, ...]]:
    began: Event | None = None
    last: Event = {}
    changes = 0
    for event in events:
        if event.get("event") == "straggler":
            began, last, changes = began or event, event, changes + 1
        elif event.get("event") in {"straggler_gone", "ended", "finished"} and began is not None:
            yield _row(began, last, clock_of(event.get("time")), changes)
            began, changes = None, 0
    if began is not None:
        yield _row(began, last, "still there", changes)


def _row(began: Event, last: Event, end: str, changes: int) -> tuple[str, ...]:
    found = last.get("stragglers")
    slow = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    who = ", ".join(
        f"replica {s.get('replica')} x{_number(s.get('slowdown'))} ({s.get('cause')})" for s in slow
    )
    sync_s = last.get("sync_time_s")
    meet = f"{sync_s:.4g} s" if isinstance(sync_s, int | float) else "-"
    return clock_of(began.get("time")), end, who or "-", meet, str(changes)


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "?"
