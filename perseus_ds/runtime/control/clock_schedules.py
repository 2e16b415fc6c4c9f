"""The clock requests of one pipeline rank, for every plan that it may follow."""

from __future__ import annotations

from functools import cached_property

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import PlanSet, clock_requests, opening_clocks
from perseus_ds.runtime.control.clock_sequencer import ClockSchedule


class ClockSchedules:
    """The clock schedule of one pipeline rank for every plan, each made when it is first asked for.

    Cost: one pass over the schedule's graph the first time, a look-up from then on.
    """

    def __init__(self, plans: PlanSet, *, pipeline_rank: int, change: ClockChange) -> None:
        self._plans = plans
        self._rank = pipeline_rank
        self._change = change
        self.computations = len(plans.computations_of(pipeline_rank))
        self._schedules: dict[tuple[int, bool], ClockSchedule] = {}

    def __len__(self) -> int:
        """How many plans there are."""
        return len(self._plans)

    def of(self, plan: int, *, on_pace: bool = True) -> ClockSchedule:
        """Every request of the rank, by the computation that it is asked in.

        ``on_pace``: computations last as long as planned, so that lower clocks may be asked for ahead.
        """
        key = plan, on_pace
        if key not in self._schedules:
            chosen = self._plans.plan(plan)
            requests = clock_requests(chosen, self._rank, self._change, on_pace=on_pace)
            opening = opening_clocks(chosen, self._rank, requests)
            self._schedules[key] = ClockSchedule.of(requests, opening, self.computations)
        return self._schedules[key]

    @cached_property
    def highest(self) -> ClockSchedule:
        """The highest clock of the plans throughout."""
        own = [self._plans.options[i.stage, i.kind] for _, i in self._plans.computations_of(self._rank)]
        highest_mhz = max(int(max(options.clock_mhz)) for options in own)
        return ClockSchedule.of((), (highest_mhz, None), self.computations)

    def time_s(self, plan: int) -> float:
        """How long an iteration lasts by a plan."""
        return float(self._plans.iteration_time_s[plan])
