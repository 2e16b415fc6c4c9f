"""A timeline as boxes to draw: one lane per stage, work and waiting told apart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from perseus_ds.run_directory import Span, Timeline
from perseus_ds.schedule import Kind

_HEIGHT = {Kind.FORWARD: 0.62, Kind.BACKWARD: 0.86}
_OTHER_HEIGHT = 0.34
WAITING_HEIGHT = 0.22
_NAMES = {"baseline": "before: default clocks", "perseus": "after: the plan's clocks"}


@dataclass(frozen=True, slots=True)
class Gap:
    """Time in which a stage waits."""

    start_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Lane:
    """What one stage does over the iteration, in time order."""

    stage: int
    spans: tuple[Span, ...]
    gaps: tuple[Gap, ...]


def lanes(timeline: Timeline) -> list[Lane]:
    """Split a timeline by stage and find the gaps, the one before the iteration's end included."""
    of_stage: dict[int, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        of_stage[span.instruction.stage].append(span)
    return [
        Lane(stage, tuple(spans), tuple(_gaps(spans, timeline.iteration_time_s)))
        for stage, spans in sorted(of_stage.items())
        if spans.sort(key=lambda span: span.start_s) is None
    ]


def panel_name(timeline: Timeline) -> str:
    """What a timeline is called over its panel."""
    return _NAMES.get(timeline.name, timeline.name)


def height(kind: Kind) -> float:
    """How tall a box is, of a lane of height 1: a backward is taller than a forward."""
    return _HEIGHT.get(kind, _OTHER_HEIGHT)


def energy_j(timeline: Timeline) -> float:
    """Energy of what is drawn: mean power over each box, blocking power wherever nothing is computed."""
    computed = [span for span in timeline.spans if span.power_w is not None]
    stages = len({span.instruction.stage for span in timeline.spans})
    working_s = sum(span.duration_s for span in computed)
    waiting_s = stages * timeline.iteration_time_s - working_s
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
