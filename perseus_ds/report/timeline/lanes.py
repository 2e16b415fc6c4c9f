"""A timeline as boxes to draw: one lane per pipeline rank, work and waiting apart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from perseus_ds.run_directory import RecordedIteration, Span

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
