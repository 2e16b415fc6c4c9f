"""Stragglers over time, from the journal: who was slow, from when to when, and what it meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perseus_ds.report.contents.journal import clock_of

Event = Mapping[str, object]
HEADER = ("from", "to", "who", "meet at", "events")


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
