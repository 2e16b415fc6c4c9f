"""The plan in force on this stage: its replica's, and the clocks that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perseus_ds.errors import EngineError
from perseus_ds.plan import FrequencyPlan
from perseus_ds.runtime.channel import LoadExchange
from perseus_ds.runtime.clock_sequencer import ClockSchedule, ClockSchedules
from perseus_ds.runtime.event_log import StragglerReporter
from perseus_ds.runtime.job import GpuAddress
from perseus_ds.runtime.status import JobStatus
from perseus_ds.schedule import Load
from perseus_ds.straggler.controller import Cause, ReplicaStatus, Straggler
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.pacing import Forecast
from perseus_ds.straggler.replica_plans import Pace, ReplicaPlans

# This rank's part in pacing replicas by loads: foretell, report, and choose plans by what all report.


class IterationPacer:
    """Has all replicas' predictions exchanged at an iteration's begin, and their plans chosen by them.

    ``speaks``: this rank reports for its replica. All ranks take in the reports of an iteration, at the
    latest when it ends, and so keep the same book (`ReplicaPlans`). Ranks that are lost within an iteration
    are reported when it `ends`; until then it goes on as it was.
    """

    def __init__(
        self, replica_plans: ReplicaPlans, exchange: LoadExchange, forecast: Forecast, *, speaks: bool
    ) -> None:
        self._replica_plans = replica_plans
        self._exchange = exchange
        self._forecast = forecast
        self._speaks = speaks
        self._predicted_s: float | None = None
        self._index: int | None = None
        self._lost: EngineError | None = None

    def foretell(self, loads: Sequence[Load] | None) -> None:
        """Take in the loads of the coming iteration's microbatches, where they are known."""
        usable = self._speaks and loads is not None and len(loads) == self._forecast.microbatches
        self._predicted_s = self._forecast.of(loads) if loads is not None and usable else None

    def begins(self, index: int) -> None:
        """Report how long iteration ``index`` will take, in which all report."""
        self._index = index
        try:
            self._exchange.begin(self._predicted_s)
        except EngineError as error:
            self._lost, self._index = error, None

    def changes(self) -> bool:
        """Return whether what all have reported changes a plan from now on; once."""
        if self._index is None:
            return False
        try:
            return self._exchange.arrived() and self._take(self._index)
        except EngineError as error:
            self._lost, self._index = error, None
            return False

    def ends(self) -> None:
        """Take in the reports that came too late to be followed.

        Raises:
            EngineError: some rank did not report in time.
        """
        if self._lost is not None:
            raise self._lost
        if self._index is not None:
            self._take(self._index)

    def close(self) -> None:
        """Take part no more."""
        self._exchange.close()

    def _take(self, index: int) -> bool:
        self._index = None
        return self._replica_plans.pace(index, self._exchange.take())


class ActivePlan:
    """The objective's plan, and with several replicas whatever the controller decides.

    What was decided reaches the clocks from here: the session begins an iteration by the schedule of `begin`.
    Where there are several replicas ``replica_plans`` decides, ``reporter`` names stragglers and ``pacer``
    shares loads. ``behind`` is how many iterations the exchanged numbers are older than the exchange.
    ``indexes`` are every replica's frontier: a power cap restricts them to plans below it.
    ``pipelines`` share a cap of the job. ``observed`` is what was exchanged last.
    """

    def __init__(
        self,
        schedules: ClockSchedules,
        objective: FrequencyPlan,
        *,
        replica: int = 0,
        replica_plans: ReplicaPlans | None = None,
        reporter: StragglerReporter | None = None,
        pacer: IterationPacer | None = None,
        behind: int = 0,
        indexes: Sequence[FrontierIndex] = (),
        pipelines: int = 1,
    ) -> None:
        self._free = self._indexes = tuple(indexes)
        self._pipelines = pipelines
        self._power_w: float | None = None
        self._schedules = schedules
        self._objective = objective.index
        self._replica = replica
        self._replica_plans, self._reporter, self._pacer = replica_plans, reporter, pacer
        self._behind = behind
        self._will_tell: int | None = None
        self._pace = Pace(1)
        self._changed_after: int | None = None
        self._present = self._schedule()
        self.observed: JobStatus | None = None

    @property
    def plan(self) -> float:
        """The plan that this replica runs now."""
        return self._unanswered if self._replica_plans is None else self._replica_plans.plans[self._replica]

    @property
    def plans(self) -> Sequence[float]:
        """The plans that all replicas run now."""
        return [self._unanswered] if self._replica_plans is None else self._replica_plans.plans

    @property
    def power_capped(self) -> bool:
        """Return whether default clocks would take more power than the job may."""
        power_w = self._pipeline_w
        return power_w is not None and any(index.default_w > power_w for index in set(self._free))

    @property
    def power_cap_cost(self) -> Mapping[str, float]:
        """The plan under the power cap, its power over all pipelines, and by how much it is slower."""
        free, index = self._free[self._replica], self._indexes[self._replica]
        return {
            "plan": index.objective,
            "plan_w": float(index.power_w[index.objective]) * self._pipelines,
            "slowdown_pct": 100.0 * (index.objective_s / free.objective_s - 1.0),
        }

    @property
    def _pipeline_w(self) -> float | None:
        return None if self._power_w is None else self._power_w / self._pipelines

    @property
    def _unanswered(self) -> int:
        """The plan where nobody waits: the objective's, or the fastest below the power cap."""
        return self._indexes[self._replica].objective if self._indexes else self._objective

    def begin(self) -> ClockSchedule:
        """Return this stage's clocks in the iteration that begins; where replicas are paced, report loads."""
        if self._will_tell is not None and self._pacer is not None:
            self._pacer.begins(self._will_tell)
        return self._present

    @property
    def paces(self) -> bool:
        """Return whether `paced_schedule` is to be asked before computations of the present iteration."""
        return self._will_tell is not None and self._pacer is not None

    def paced_schedule(self) -> ClockSchedule | None:
        """Return the clocks of another plan once all replicas have reported their loads; else None."""
        if self._will_tell is None or self._pacer is None or not self._pacer.changes():
            return None
        self._present = self._schedule()
        return self._present

    @property
    def sync_time_s(self) -> float | None:
        """The iteration time at which all replicas meet; None while nobody waits."""
        return None if self._replica_plans is None else self._replica_plans.sync_time_s

    @property
    def awaited(self) -> Sequence[tuple[Straggler, Sequence[GpuAddress]]]:
        """The stragglers that others wait for, each with its devices."""
        return () if self._reporter is None else self._reporter.awaited

    @property
    def objective_s(self) -> float:
        """The iteration time that the objective's plan predicts."""
        return self._schedules.time_s(self._unanswered)

    @property
    def choices(self) -> int:
        """Return how many plans there are to choose from."""
        return len(self._schedules)

    @property
    def awaited_s(self) -> float:
        """Duration of an iteration that the objective's plan predicts, or that a straggler needs."""
        return self.objective_s if self.sync_time_s is None else self.sync_time_s

    @property
    def slack_s(self) -> float:
        """Return how much of that this replica would wait if it ran the objective's plan."""
        return max(0.0, self.awaited_s - self.objective_s)

    @property
    def has_slack(self) -> bool:
        """Return whether a replica waits for one that could be faster; one with slower GPUs is as it is."""
        decision = None if self._replica_plans is None else self._replica_plans.decision
        if decision is None or (decision.sync_time_s is None and not decision.ended):
            return False
        return any(one.cause is not Cause.STRUCTURAL for one in decision.stragglers)

    @property
    def answers(self) -> Mapping[str, object]:
        """Return what answers have cost and what pacing did so far; empty of one replica."""
        return {} if self._replica_plans is None else {"answers": self._replica_plans.account}

    def changed_after(self, index: int) -> bool:
        """Return whether plans changed by what was exchanged while iteration ``index`` ran."""
        return self._changed_after == index

    def hold(self, index: int, job_status: JobStatus) -> None:
        """Take in the power cap that holds after iteration ``index``, whichever plan ran in it."""
        if not self._free or job_status.power_w == self._power_w:
            return
        self._power_w = job_status.power_w
        power_w = self._pipeline_w
        below = {one: one if power_w is None else one.below(power_w) for one in set(self._free)}
        self._indexes = tuple(below[one] for one in self._free)
        self._changed_after = index
        if self._replica_plans is not None:
            self._replica_plans.restrict(self._indexes, index=index + 1)
        self._present = self._schedule()

    def observe(self, index: int, job_status: JobStatus) -> None:
        """Take in what was exchanged while iteration ``index`` ran."""
        self._end_telling()
        self.hold(index, job_status)
        self.observed = job_status
        if self._replica_plans is None:
            self._observe_own_pace(index, job_status.iteration_s)
        elif job_status.replicas is not None:
            self._observe_replicas(self._replica_plans, index, job_status.replicas)
        self._present = self._schedule()

    def _observe_own_pace(self, index: int, iteration_s: float | None) -> None:
        """Compare an iteration with the plan, unless it may have run by another one than the present."""
        changed = self._changed_after
        known = iteration_s is not None and (changed is None or index > changed + 2 + self._behind)
        self._pace.observe(np.array([iteration_s / self.objective_s if known and iteration_s else np.nan]))

    def _observe_replicas(
        self, replica_plans: ReplicaPlans, index: int, replica_status: ReplicaStatus
    ) -> None:
        if replica_plans.observe(index - 1 - self._behind, replica_status):
            self._changed_after = index
        if self._reporter is not None and replica_plans.decision is not None:
            self._reporter.report(replica_plans.decision, replica_plans.plans)

    def meet(self, loads: Sequence[Load] | None) -> None:
        """Take in the loads of the coming iteration's microbatches, where they are known."""
        if self._pacer is not None:
            self._pacer.foretell(loads)

    def will_run(self, index: int) -> None:
        """Note that iteration ``index`` is run by the plan."""
        if self._replica_plans is not None:
            self._replica_plans.will_run(index)
            self._present = self._schedule()
        if self._pacer is not None and not self.power_capped:  # forecasts are of the objective's plan
            self._will_tell = index

    def alone(self) -> None:
        """Run the objective's plan from now on, or what a power cap allows; whatever the others do."""
        self.close()
        self._replica_plans = self._will_tell = None
        self._present = self._schedule()

    def end_answers(self) -> None:
        """Run the objective's plan on beside any straggler: answers cost more than they may."""
        if self._replica_plans is not None:
            self._replica_plans.end_answers()
            self._present = self._schedule()

    def close(self) -> None:
        """Report nothing any more; safe to call twice."""
        if self._pacer is not None:
            self._pacer.close()
            self._pacer = None

    def _end_telling(self) -> None:
        """Take in all that was reported in the iteration that has ended."""
        if self._will_tell is None:
            return
        self._will_tell = None
        if self._pacer is not None:
            self._pacer.ends()

    def _schedule(self) -> ClockSchedule:
        """This stage's part of the present plan; lower clocks come ahead where iterations keep its time."""
        if self._replica_plans is None:
            return self._schedules.of(self.plan, on_pace=not self._pace.behind[0])
        held = self._replica in self._replica_plans.held
        if held and self.plan == 0 and not self.power_capped:
            return self._schedules.highest  # the fastest plan lowers clocks too, by another pace than this
        on_pace = self._replica_plans.on_pace[self._replica]
        return self._schedules.of(self.plan, on_pace=on_pace)
