"""The clock schedule of one pipeline rank for every plan, built when it is first needed."""

from __future__ import annotations

from perseus_ds.device import ClockChange
from perseus_ds.plan import PlanSet, clock_requests, opening_clocks
from perseus_ds.runtime.control.clock_sequencer import ClockSchedule


class ClockScheduleCache:
    """Clock schedules by plan, each made when it is first asked for.

    Cost: one pass over the schedule's graph the first time, a look-up from then on.
    """

    def __init__(self, plans: PlanSet, *, pipeline_rank: int, change: ClockChange) -> None:
        self._plans = plans
        self._rank = pipeline_rank
        self._change = change
        self._computations = len(plans.computations_of(pipeline_rank))
        self._schedules: dict[int, ClockSchedule] = {}

    def clock_policy(self, plan: int) -> ClockSchedule:
        """Every request of the rank, by the computation that it is asked in."""
        if plan not in self._schedules:
            chosen = self._plans.plan(plan)
            requests = clock_requests(chosen, self._rank, self._change)
            opening = opening_clocks(chosen, self._rank, requests)
            self._schedules[plan] = ClockSchedule.of(requests, opening, self._computations)
        return self._schedules[plan]
