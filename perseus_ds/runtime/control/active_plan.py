"""The plan in force on this stage: its replica's, and the clocks that it asks for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseus_ds.plan import FrequencyPlan
from perseus_ds.runtime.comm.status import JobStatus
from perseus_ds.runtime.control.clock_schedules import ClockScheduleCache
from perseus_ds.runtime.control.clock_sequencer import ClockSchedule
from perseus_ds.runtime.observe.straggler_reporter import StragglerReporter
from perseus_ds.straggler import Cause, Pace, ReplicaPlans


class ActivePlan:
    """The objective's plan, and with several replicas whatever the controller decides.

    ``behind`` is how many iterations the numbers that arrive are older than the exchange itself,
    ``observed`` what was exchanged last.
    """

    def __init__(
        self,
        schedules: ClockScheduleCache,
        objective: FrequencyPlan,
        *,
        replica: int = 0,
        replica_plans: ReplicaPlans | None = None,
        reporter: StragglerReporter | None = None,
        behind: int = 0,
    ) -> None:
        self._schedules = schedules
        self._objective = objective.index
        self._objective_s = objective.iteration_time_s
        self._replica = replica
        self._replica_plans = replica_plans
        self._reporter = reporter
        self._behind = behind
        self._pace = Pace(1)
        self.observed: JobStatus | None = None

    @property
    def plan(self) -> int:
        """The plan that this replica runs now."""
        return self._objective if self._replica_plans is None else self._replica_plans.plans[self._replica]

    @property
    def plans(self) -> Sequence[int]:
        """The plans that all replicas run now."""
        return [self._objective] if self._replica_plans is None else self._replica_plans.plans

    @property
    def clock_policy(self) -> ClockSchedule:
        """This stage's part of it.

        Cost: a look-up, but for the first time that a plan is run.
        """
        on_pace = not self._pace.behind[0]
        if self._replica_plans is not None:
            on_pace = self._replica_plans.on_pace[self._replica]
        return self._schedules.clock_policy(self.plan, on_pace=on_pace)

    @property
    def sync_time_s(self) -> float | None:
        """The iteration time at which all replicas meet; None while nobody waits."""
        return None if self._replica_plans is None else self._replica_plans.sync_time_s

    @property
    def awaited_s(self) -> float:
        """How long an iteration has to be: as the objective's plan predicts, or as the straggler needs."""
        return self._objective_s if self.sync_time_s is None else self.sync_time_s

    @property
    def slack_s(self) -> float:
        """How much of that this replica would wait if it ran the objective's plan."""
        return max(0.0, self.awaited_s - self._objective_s)

    @property
    def has_slack(self) -> bool:
        """Whether some replica waits for one that could be faster; one with slower GPUs is as it is."""
        if self._replica_plans is None or self._replica_plans.decision is None or self.sync_time_s is None:
            return False
        return any(one.cause is not Cause.STRUCTURAL for one in self._replica_plans.decision.stragglers)

    def observe(self, index: int, job_status: JobStatus) -> bool:
        """Take in what was exchanged while iteration ``index`` ran; return whether plans change."""
        self.observed = job_status
        if self._replica_plans is None:
            lasted_s = np.nan if job_status.iteration_s is None else job_status.iteration_s
            self._pace.observe(np.array([lasted_s / self._objective_s]))
            return False
        if job_status.replicas is None:
            return False
        changed = self._replica_plans.observe(index - 1 - self._behind, job_status.replicas)
        if self._reporter is not None and self._replica_plans.decision is not None:
            self._reporter.report(self._replica_plans.decision, self._replica_plans.plans)
        return changed

    def will_run(self, index: int) -> None:
        """Note that iteration ``index`` is run by the plan."""
        if self._replica_plans is not None:
            self._replica_plans.will_run(index)

    def alone(self) -> None:
        """Play the objective's plan from now on, whatever the others do."""
        self._replica_plans = None
