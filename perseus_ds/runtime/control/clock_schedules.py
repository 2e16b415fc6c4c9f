"""The clock schedule of one pipeline rank for every plan, built when it is first needed."""

from __future__ import annotations

from perseus_ds.plan import PlanSet
from perseus_ds.runtime.control.clock_sequencer import ClockSchedule, ClockStep


class ClockScheduleCache:
    """Clock schedules by plan, each made when it is first asked for.

    Cost: a step for every computation of the rank the first time, a look-up from then on.
    """

    def __init__(self, plans: PlanSet, *, pipeline_rank: int, lead_s: float) -> None:
        columns = plans.computations_of(pipeline_rank)
        tables = {
            key: [
                ClockStep(int(clock_mhz), float(time_s))
                for clock_mhz, time_s in zip(options.clock_mhz, options.time_s, strict=True)
            ]
            for key, options in plans.options.items()
        }
        self._steps = [tables[instruction.stage, instruction.kind] for _, instruction in columns]
        self._choice = plans.choice[:, [column for column, _ in columns]]
        self._lead_s = lead_s
        self._scores: dict[int, ClockSchedule] = {}

    def clock_policy(self, plan: int) -> ClockSchedule:
        """Clock and duration of every computation of the rank, in running order."""
        if plan not in self._scores:
            row = self._choice[plan].tolist()
            steps = tuple(table[option] for table, option in zip(self._steps, row, strict=True))
            self._scores[plan] = ClockSchedule(steps, self._lead_s)
        return self._scores[plan]
