"""The journal of decisions: ``events.jsonl``, one object a line, appended by rank 0; and how a job ended."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import open_to_append, parse_json, read_bounded, reason_of

MOST_BYTES = 256 << 20
_MOST_TEXT = 1 << 20
_CHUNK = 64 << 10
_REASONS = {
    "attached": "it ended before its warm-up was over",
    "warming_up": "it ended before its warm-up was over",
    "calibrated": "it ended before its warm-up was over",
    "profiling": "it ended while clocks were being profiled",
    "profiled": "it ended before its plan was there",
    "planning": "it ended before its plan was there",
    "running": "it ended before the first audit, which measures the saving",
    "too_slow": "this host was too slow for the GPUs that it simulates",
    "alone": "a rank fell silent, and did not answer again",
    "disabled": "we were off",
}
_REMEDY = {
    "attached": "run it for longer",
    "profiling": "run it for longer, or set perseus.profile.max_clocks lower",
    "profiled": "its profile is kept: the next start plans at once",
    "planning": "its profile is kept: the next start plans at once",
    "too_slow": 'set simulated.time to "virtual"',
    "running": "its plan is kept: the next start runs it at once; perseus.audit.every_iterations sets when",
}
NOTHING_MEASURED = "no iteration can be measured"
"""Beginning of the line of a ``not_measured`` event of a job that measures nothing for as long as it runs."""
_NOTHING_TO_MEASURE = frozenset({"profile", "observe"})


def append_event(path: Path, event: str, facts: Mapping[str, object], *, at: datetime | None = None) -> None:
    """Add one line: what happened, at which wall-clock time (now), and the facts that explain it.

    Half a line at the end, of a writer that was killed or a disk that was full, is taken away first: one job
    writes here, and no reader was ever given it. An `OSError`: no ordinary file can be written there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    moment = (at or datetime.now(UTC)).isoformat(timespec="milliseconds")
    line = {"time": moment, "event": event, **facts}
    with open_to_append(path) as file:
        descriptor = file.fileno()
        if (whole := _whole_bytes(descriptor)) < os.fstat(descriptor).st_size:
            os.ftruncate(descriptor, whole)
        file.write(json.dumps(_finite(line)) + "\n")


def read_events(path: Path) -> list[dict[str, object]]:
    """Return all whole lines, without one that is being written; an error names the file and the line."""
    try:
        lines = read_bounded(path, most_bytes=MOST_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    except (OSError, PerseusError) as error:
        raise PerseusError(f"{path} {reason_of(error)}") from error
    events: list[dict[str, object]] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            events += [parse_event(line)] if line else []
        except PerseusError as error:
            raise PerseusError(f"{path}: line {number} {error.message}", hint=error.hint) from error
    return events


def parse_event(line: bytes) -> dict[str, object]:
    """Read one line; the message of an error lacks the file and the line."""
    event = parse_json(line)
    if not isinstance(event, dict) or "event" not in event:
        raise PerseusError("is not an event")
    for key in {"event", "time", "line"} & event.keys():
        if not isinstance(value := event[key], str) or len(value) > _MOST_TEXT:
            raise PerseusError(f"{key} is {value!r:.40}", hint="expected text")
    return event


def _whole_bytes(descriptor: int) -> int:
    """Return where the last whole line of a file ends."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _CHUNK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _finite(value: object) -> object:
    """The same without what JSON cannot hold: a number that is not finite is null."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def why_unmeasured(events: Sequence[Mapping[str, object]]) -> str | None:
    """Return why the journal's last job left no figure, and what to do; None where it left one or was not to.

    Jobs follow each other in one journal: each begins with its ``attached``.
    """
    last: list[Mapping[str, object]] = []
    for event in events:
        last = [event] if event.get("event") == "attached" else [*last, event]
    names = [str(event.get("event")) for event in last]
    if not last or "measured" in names or str(last[0].get("mode")) in _NOTHING_TO_MEASURE:
        return None
    if last[0].get("start") == "observe":
        return None
    told = [str(one.get("line")) for one in last if one.get("event") == "not_measured"]
    if "profiled" not in names and (never := [line for line in told if line.startswith(NOTHING_MEASURED)]):
        return f"no saving was measured: {never[-1]}"
    reached = next((name for name in reversed(names) if name in _REASONS), "attached")
    remedy = f"; {_REMEDY[reached]}" if reached in _REMEDY else ""
    return f"no saving was measured: {_REASONS[reached]}{remedy}"
