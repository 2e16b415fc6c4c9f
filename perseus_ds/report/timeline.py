"""An iteration on a time axis: a row per pipeline rank, its energy, and the trace for Perfetto."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.run_directory.paths import write_whole
from perseus_ds.run_directory.records import RecordedIteration, Span
from perseus_ds.schedule import Instruction

Event = dict[str, object]
_NAMES = {"baseline": "before: default clocks", "perseus": "after: the plan's clocks"}


@dataclass(frozen=True, slots=True)
class RankRow:
    """Course of one rank over the iteration, in time order; ``stages`` are its chunks, lowest first."""

    rank: int
    stages: tuple[int, ...]
    spans: tuple[Span, ...]
    idle_s: float

    @property
    def name(self) -> str:
        """Name a rank that runs the stage of its own number alone after that."""
        return f"stage {self.rank}" if self.stages == (self.rank,) else f"rank {self.rank}"


def rank_rows(timeline: RecordedIteration) -> list[RankRow]:
    """Split a timeline by rank; idle is all time without an instruction, until the iteration's end."""
    of_rank: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(timeline.spans, key=lambda span: span.start_s):
        of_rank[timeline.rank_of(span.instruction)].append(span)
    rows = []
    for rank, spans in sorted(of_rank.items()):
        idle_s, free_s = 0.0, 0.0
        for span in spans:
            idle_s += max(0.0, span.start_s - free_s)
            free_s = max(free_s, span.start_s + span.duration_s)
        idle_s += max(0.0, timeline.iteration_time_s - free_s)
        stages = tuple(sorted({span.instruction.stage for span in spans}))
        rows.append(RankRow(rank, stages, tuple(spans), idle_s))
    return rows


def panel_name(timeline: RecordedIteration) -> str:
    """Return the heading of a timeline's panel."""
    return _NAMES.get(timeline.name, timeline.name)


def energy_j(timeline: RecordedIteration) -> float:
    """Add up one pipeline's energy: mean power over each box, blocking power wherever nothing is computed."""
    waiting_s = sum(span.duration_s for span in timeline.spans if span.power_w is None)
    waiting_s += sum(lane.idle_s for lane in rank_rows(timeline))
    return timeline.blocking_power_w * waiting_s + sum(
        (span.power_w or 0.0) * span.duration_s for span in timeline.spans
    )


def write_trace(
    timelines: Sequence[RecordedIteration], path: Path, *, critical: Mapping[str, Collection[Instruction]]
) -> Path:
    """Write the trace for Perfetto and chrome://tracing, one process per timeline.

    ``critical`` is each one's longest path, by its name.

    Source: Trace Event Format (Google, 2016): complete (``X``), counter (``C``) and metadata (``M``) events,
    times in microseconds.
    """
    events = list[Event]()
    for process, timeline in enumerate(timelines, start=1):
        events += _trace_events(timeline, process, frozenset(critical.get(timeline.name, ())))
    simulated = "yes" if any(timeline.simulated for timeline in timelines) else "no"
    facts = {"producer": "perseus_ds", "simulated": simulated}
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}
    write_whole(path, json.dumps(content, separators=(",", ":")))
    return path


def _trace_events(
    timeline: RecordedIteration, process: int, critical: frozenset[Instruction]
) -> Iterator[Event]:
    def event(phase: str, name: str, thread: int, facts: dict[str, object], **more: object) -> Event:
        return {"ph": phase, "name": name, "pid": process, "tid": thread, "args": facts, **more}

    rows = rank_rows(timeline)
    yield event("M", "process_name", 0, {"name": panel_name(timeline)})
    for lane in rows:
        yield event("M", "thread_name", lane.rank, {"name": lane.name})
        yield event("M", "thread_sort_index", lane.rank, {"sort_index": lane.rank})
        clock_mhz = None
        for span in lane.spans:
            on_path, start_us = span.instruction in critical, _us(span.start_s)
            facts: dict[str, object] = {"critical": on_path}
            if span.clock_mhz is not None:
                facts["clock_mhz"] = span.clock_mhz
            if span.power_w is not None:
                facts |= {"power_w": span.power_w, "energy_j": span.power_w * span.duration_s}
            box = {"cat": span.instruction.kind.words + ",critical" * on_path, "ts": start_us}
            yield event("X", str(span.instruction), lane.rank, facts, **box, dur=_us(span.duration_s))
            if span.clock_mhz not in {None, clock_mhz}:
                clock_mhz = span.clock_mhz
                mhz: dict[str, object] = {"MHz": float(clock_mhz or 0)}
                yield event("C", f"clock of {lane.name}", lane.rank, mhz, ts=start_us)
    for when_us, power_w in _power(timeline, len(rows)):
        yield event("C", "power of the pipeline", 0, {"W": round(power_w, 3)}, ts=when_us)


def _power(timeline: RecordedIteration, ranks: int) -> Iterator[tuple[float, float]]:
    """Yield microseconds and the power of all ranks together, whenever it changes."""
    blocking_w = timeline.blocking_power_w
    steps: dict[float, float] = defaultdict(float)  # ends and starts that differ by rounding are one moment
    steps[0.0] += blocking_w * ranks
    steps[_us(timeline.iteration_time_s)] -= blocking_w * ranks
    for span in timeline.spans:
        if span.power_w is not None:
            steps[_us(span.start_s)] += span.power_w - blocking_w
            steps[_us(span.start_s + span.duration_s)] -= span.power_w - blocking_w
    power_w = 0.0
    for when_us in sorted(steps):
        power_w += steps[when_us]
        yield when_us, power_w


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 3)
