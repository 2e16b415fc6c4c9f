"""What the energy of an iteration goes into: work, what no clock changes, bubbles, stragglers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perseus_ds.files.fields import MOST
from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.plan.playing.play import Played, play, play_baseline
from perseus_ds.report.timeline.lanes import lanes
from perseus_ds.run_directory import RecordedIteration

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
