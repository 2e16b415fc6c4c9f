"""What the energy of an iteration goes into: work, what no clock changes, bubbles, stragglers."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.report.timeline.lanes import lanes
from perseus_ds.run_directory import Timeline


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


def causes(timeline: Timeline) -> Causes:
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


def clock_changes(timeline: Timeline) -> float:
    """Changes of clock per iteration and rank, from one iteration to the next included."""
    changes = 0
    rows = lanes(timeline)
    for lane in rows:
        clocks = [span.clock_mhz for span in lane.spans if span.clock_mhz is not None]
        changes += sum(one != other for one, other in zip(clocks, clocks[1:] + clocks[:1], strict=True))
    return changes / max(1, len(rows))
