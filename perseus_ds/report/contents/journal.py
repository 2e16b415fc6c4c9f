"""The journal in words: one readable line per event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


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
    return ", ".join(" ".join(named_value(name, value)) for name, value in facts.items())


def named_value(name: str, value: object) -> tuple[str, str]:
    """Return a fact's name and value for reading: the unit moves from the name's end behind the number."""
    shown = f"{value:.5g}" if isinstance(value, float) else str(value)
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " "), shown + unit
    return name.replace("_", " "), shown


_UNITS = {"_s": " s", "_j": " J", "_w": " W", "_mhz": " MHz", "_pct": " %", "_us": " us", "_ms": " ms"}


def clock_of(time: object) -> str:
    """Return HH:MM:SS of an ISO time; anything else as it stands."""
    text = str(time or "")
    return text[11:19] if len(text) >= len("2025-01-01T00:00:00") else text
