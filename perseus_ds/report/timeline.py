"""A timeline as boxes to draw: one lane per pipeline rank, work and waiting apart."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.files.fields import MOST
from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.plan.clock_requests import Played, play, play_baseline
from perseus_ds.run_directory import RecordedIteration, Span, write_whole
from perseus_ds.schedule import Instruction

_NAMES = {"baseline": "before: default clocks", "perseus": "after: the plan's clocks"}


@dataclass(frozen=True, slots=True)
class Gap:
    """Time in which a rank waits."""

    start_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Lane:
    """What one rank does over the iteration, in time order; ``stages`` are its chunks, lowest first."""

    rank: int
    stages: tuple[int, ...]
    spans: tuple[Span, ...]
    gaps: tuple[Gap, ...]

    @property
    def name(self) -> str:
        """What stands beside it."""
        return lane_name(self.rank, self.stages)


def lane_name(rank: int, stages: tuple[int, ...]) -> str:
    """Call a rank that runs the stage of its own number alone after that."""
    return f"stage {rank}" if stages == (rank,) else f"rank {rank}"


def lanes(timeline: RecordedIteration) -> list[Lane]:
    """Split a timeline by rank and find the gaps, the one before the iteration's end included."""
    of_rank: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(timeline.spans, key=lambda span: span.start_s):
        of_rank[timeline.rank_of(span.instruction)].append(span)
    return [
        Lane(
            rank,
            tuple(sorted({span.instruction.stage for span in spans})),
            tuple(spans),
            tuple(_gaps(spans, timeline.iteration_time_s)),
        )
        for rank, spans in sorted(of_rank.items())
    ]


def panel_name(timeline: RecordedIteration) -> str:
    """What a timeline is called over its panel."""
    return _NAMES.get(timeline.name, timeline.name)


def energy_j(timeline: RecordedIteration) -> float:
    """Energy of what is drawn: mean power over each box, blocking power wherever nothing is computed."""
    computed = [span for span in timeline.spans if span.power_w is not None]
    ranks = len({timeline.rank_of(span.instruction) for span in timeline.spans})
    working_s = sum(span.duration_s for span in computed)
    waiting_s = ranks * timeline.iteration_time_s - working_s
    working_j = sum((span.power_w or 0.0) * span.duration_s for span in computed)
    return working_j + timeline.blocking_power_w * waiting_s


def _gaps(spans: list[Span], end_s: float) -> list[Gap]:
    gaps, free_s = [], 0.0
    for span in spans:
        if span.start_s > free_s:
            gaps.append(Gap(free_s, span.start_s - free_s))
        free_s = max(free_s, span.start_s + span.duration_s)
    if end_s > free_s:
        gaps.append(Gap(free_s, end_s - free_s))
    return gaps


# What the energy of an iteration goes into: work, what no clock changes, bubbles, stragglers.

Event = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Causes:
    """Energy of one pipeline over one iteration, by cause; all that is not work draws blocking power.

    ``fixed_j`` is transfers, reduction, step and the like; ``bubbles_j`` the gaps between instructions;
    ``straggler_j`` the wait for another pipeline at the iteration's end.
    """

    name: str
    working_j: float
    fixed_j: float
    bubbles_j: float
    straggler_j: float = 0.0

    @property
    def total_j(self) -> float:
        """All of it."""
        return self.working_j + self.fixed_j + self.bubbles_j + self.straggler_j


def causes(timeline: RecordedIteration) -> Causes:
    """Add the boxes of a timeline up."""
    computed = [span for span in timeline.spans if span.power_w is not None]
    fixed_s = sum(span.duration_s for span in timeline.spans if span.power_w is None)
    gaps_s = sum(gap.duration_s for lane in lanes(timeline) for gap in lane.gaps)
    return Causes(
        timeline.name,
        working_j=sum((span.power_w or 0.0) * span.duration_s for span in computed),
        fixed_j=timeline.blocking_power_w * fixed_s,
        bubbles_j=timeline.blocking_power_w * gaps_s,
    )


def clock_changes(timeline: RecordedIteration) -> float:
    """Changes of clock per iteration and rank, from one iteration to the next included."""
    changes = 0
    rows = lanes(timeline)
    for lane in rows:
        clocks = [span.clock_mhz for span in lane.spans if span.clock_mhz is not None]
        changes += sum(one != other for one, other in zip(clocks, clocks[1:] + clocks[:1], strict=True))
    return changes / max(1, len(rows))


def causes_beside(plans: PlanSet, events: Sequence[Event]) -> list[Causes]:
    """Beside the last straggler of the journal: default clocks, then the plan that met it; empty without one.

    Both last until the straggler arrives. Changes of clock inside waits are part of the bubbles.
    """
    for event in reversed(events):
        sync_s, plan = event.get("sync_time_s"), _plan_met(plans, event)
        if event.get("event") != "straggler" or plan is None:
            continue
        if isinstance(sync_s, float) and 0.0 <= sync_s <= MOST:
            return [_at_default_clocks(plans, sync_s), _at_plan(plan, sync_s)]
    return []


def _plan_met(plans: PlanSet, event: Event) -> FrequencyPlan | None:
    """The plan of the first replica that waited."""
    waiting, chosen = event.get("waiting"), event.get("plans")
    if not (isinstance(waiting, list) and isinstance(chosen, list) and waiting):
        return None
    index = chosen[waiting[0]] if waiting[0] in range(len(chosen)) else None
    return plans.plan(index) if isinstance(index, int) and 0 <= index < len(plans) else None


def _at_default_clocks(plans: PlanSet, sync_s: float) -> Causes:
    baseline = plans.baseline
    waiting_w = baseline.blocking_power_w * plans.schedule.ranks
    extra_j = waiting_w * max(0.0, sync_s - baseline.iteration_time_s)
    power_w = baseline.blocking_power_w
    return _split("default clocks, waiting", play_baseline(plans), power_w, baseline.energy_j, extra_j)


def _at_plan(plan: FrequencyPlan, sync_s: float) -> Causes:
    extra_j = plan.of.blocking_total_w * max(0.0, sync_s - plan.iteration_time_s)
    return _split("the plan, waiting", play(plan), plan.of.blocking_power_w, plan.energy_j, extra_j)


def _split(name: str, played: Sequence[Played], waiting_w: float, own_j: float, extra_j: float) -> Causes:
    """Split what the pipeline takes over its own time by cause; ``extra_j`` is the wait for the straggler."""
    working_j = sum(one.energy_j for one in played)
    fixed_j = waiting_w * sum(one.duration_s for one in played if not one.parts)
    return Causes(name, working_j, fixed_j, own_j - working_j - fixed_j, extra_j)


# Timelines for chrome://tracing and Perfetto: boxes per rank, clocks and power as counters.
#
# Source: Trace Event Format (Google, 2016): complete (``X``), counter (``C``) and metadata (``M``) events,
# times in microseconds.

TraceEvent = dict[str, object]


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
) -> Iterator[TraceEvent]:
    yield _meta("process_name", process, 0, name=panel_name(timeline))
    rows, on_path = lanes(timeline), frozenset(critical)
    for lane in rows:
        yield _meta("thread_name", process, lane.rank, name=lane.name)
        yield _meta("thread_sort_index", process, lane.rank, sort_index=lane.rank)
        yield from _spans(lane, process, on_path)
        yield from _clocks(lane, process)
    yield from _power(timeline, rows, process)


def _meta(what: str, process: int, thread: int, **facts: object) -> TraceEvent:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": facts}


def _spans(lane: Lane, process: int, critical: frozenset[Instruction]) -> Iterator[TraceEvent]:
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


def _clocks(lane: Lane, process: int) -> Iterator[TraceEvent]:
    clock_mhz = None
    for span in lane.spans:
        if span.clock_mhz not in {None, clock_mhz}:
            clock_mhz = span.clock_mhz
            yield _counter(f"clock of {lane.name}", process, span.start_s, "MHz", float(clock_mhz or 0))


def _power(timeline: RecordedIteration, rows: Sequence[Lane], process: int) -> Iterator[TraceEvent]:
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


def _counter(name: str, process: int, when_s: float, unit: str, value: float) -> TraceEvent:
    return {"ph": "C", "name": name, "pid": process, "ts": _us(when_s), "args": {unit: round(value, 3)}}


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 3)
