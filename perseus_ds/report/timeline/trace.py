"""Timelines for chrome://tracing and Perfetto: boxes per rank, clocks and power as counters.

Source: Trace Event Format (Google, 2016): complete (``X``), counter (``C``) and metadata (``M``) events,
times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from perseus_ds.report.timeline.lanes import Lane, lanes, panel_name
from perseus_ds.run_directory import RecordedIteration, write_whole
from perseus_ds.schedule import Instruction

Event = dict[str, object]


def write_trace(
    timelines: Sequence[RecordedIteration], path: Path, *, critical: Mapping[str, Collection[Instruction]]
) -> Path:
    """Write one process per timeline; ``critical`` is each one's longest path, by its name."""
    events = [
        event
        for process, timeline in enumerate(timelines, start=1)
        for event in _of_timeline(timeline, process, critical.get(timeline.name, ()))
    ]
    simulated = any(timeline.simulated for timeline in timelines)
    facts = {"producer": "perseus_ds", "simulated": "yes" if simulated else "no"}
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}
    write_whole(path, json.dumps(content, separators=(",", ":")))
    return path


def _of_timeline(
    timeline: RecordedIteration, process: int, critical: Collection[Instruction]
) -> Iterator[Event]:
    yield _meta("process_name", process, 0, name=panel_name(timeline))
    rows, on_path = lanes(timeline), frozenset(critical)
    for lane in rows:
        yield _meta("thread_name", process, lane.rank, name=lane.name)
        yield _meta("thread_sort_index", process, lane.rank, sort_index=lane.rank)
        yield from _spans(lane, process, on_path)
        yield from _clocks(lane, process)
    yield from _power(timeline, rows, process)


def _meta(what: str, process: int, thread: int, **facts: object) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": facts}


def _spans(lane: Lane, process: int, critical: frozenset[Instruction]) -> Iterator[Event]:
    for span in lane.spans:
        facts: dict[str, object] = {"critical": span.instruction in critical}
        if span.clock_mhz is not None:
            facts["clock_mhz"] = span.clock_mhz
        if span.power_w is not None:
            facts |= {"power_w": span.power_w, "energy_j": span.power_w * span.duration_s}
        yield {
            "ph": "X",
            "name": str(span.instruction),
            "cat": span.instruction.kind.words + (",critical" if span.instruction in critical else ""),
            "pid": process,
            "tid": lane.rank,
            "ts": _us(span.start_s),
            "dur": _us(span.duration_s),
            "args": facts,
        }


def _clocks(lane: Lane, process: int) -> Iterator[Event]:
    clock_mhz = None
    for span in lane.spans:
        if span.clock_mhz not in {None, clock_mhz}:
            clock_mhz = span.clock_mhz
            yield _counter(f"clock of {lane.name}", process, span.start_s, "MHz", float(clock_mhz or 0))


def _power(timeline: RecordedIteration, rows: Sequence[Lane], process: int) -> Iterator[Event]:
    """Power of all ranks together, whenever it changes."""
    blocking_w = timeline.blocking_power_w
    waiting_w = blocking_w * len(rows)
    steps: dict[float, float] = {0.0: waiting_w, timeline.iteration_time_s: -waiting_w}
    for lane in rows:
        for span in lane.spans:
            if span.power_w is not None:
                end_s = span.start_s + span.duration_s
                steps[span.start_s] = steps.get(span.start_s, 0.0) + span.power_w - blocking_w
                steps[end_s] = steps.get(end_s, 0.0) - span.power_w + blocking_w
    moments: dict[float, float] = {}
    for when_s, step_w in steps.items():  # ends and starts that differ by rounding are one moment
        moments[_us(when_s)] = moments.get(_us(when_s), 0.0) + step_w
    power_w = 0.0
    for when_us in sorted(moments):
        power_w += moments[when_us]
        yield _counter("power of the pipeline", process, when_us / 1e6, "W", power_w)


def _counter(name: str, process: int, when_s: float, unit: str, value: float) -> Event:
    return {"ph": "C", "name": name, "pid": process, "ts": _us(when_s), "args": {unit: round(value, 3)}}


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 3)
