"""The plan in force on this stage: its replica's, and the clocks that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perseus_ds.errors import EngineError
from perseus_ds.plan import FrequencyPlan
from perseus_ds.runtime.channel import LoadExchange
from perseus_ds.runtime.clock_sequencer import ClockSchedule, ClockSchedules
from perseus_ds.runtime.event_log import StragglerReporter
from perseus_ds.runtime.job import GpuAddress
from perseus_ds.runtime.status import JobStatus
from perseus_ds.schedule import Load
from perseus_ds.straggler.controller import Cause, Straggler
from perseus_ds.straggler.estimate import CONFIRMATIONS
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.pacing import Forecast
from perseus_ds.straggler.replica_plans import BEHIND, ReplicaPlans

# This rank's part in pacing replicas by loads: predict, report, and choose plans by all reports.


class IterationPacer:
    """Exchanges the replicas' predictions when an iteration begins, and chooses their plans by them.

    ``speaks``: this rank reports for its replica. All ranks take in the reports of an iteration when it ends
    at the latest, so that all keep the same `ReplicaPlans`. An iteration in which ranks are lost goes on as
    it was; they are reported when it `ends`.
    """

    def __init__(
        self, replica_plans: ReplicaPlans, exchange: LoadExchange, forecast: Forecast, *, speaks: bool
    ) -> None:
        self._replica_plans = replica_plans
        self._exchange = exchange
        self._forecast = forecast
        self._speaks = speaks
        self._index: int | None = None
        self._lost: EngineError | None = None

    def begins(self, index: int, loads: Sequence[Load] | None) -> None:
        """Report how long iteration ``index`` will take, where the loads of its microbatches are known."""
        usable = self._speaks and loads is not None and len(loads) == self._forecast.microbatches
        self._index = index
        try:
            self._exchange.begin(self._forecast.of(loads) if loads is not None and usable else None)
        except EngineError as error:
            self._lost, self._index = error, None

    def changes(self) -> bool:
        """Return whether the reports of all replicas change a plan from now on; once."""
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
    """The objective's plan, and with several replicas the plan that the controller decides.

    `begin` gives the clocks of an iteration, `observe` takes in what the ranks exchanged while it ran. Where
    there are several replicas ``replica_plans`` decides, ``reporter`` names stragglers and ``pacer`` shares
    loads. ``behind`` is how many iterations the exchanged numbers are older than the exchange. ``index`` is
    the frontier: a power cap of the job, which ``pipelines`` share, restricts it to plans below it.

    ``plan`` is what this replica runs, ``objective_s`` the iteration time that the objective's plan predicts
    (or the fastest below the power cap), ``observed`` the status that was exchanged last. ``power_capped``:
    default clocks would take more power than the job may. ``has_slack``: a replica waits for one that could
    be faster. ``changed_after`` is the iteration by whose exchange plans changed last. ``paces``:
    `paced_schedule` is to be asked before each computation of the present iteration.
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
        index: FrontierIndex | None = None,
        pipelines: int = 1,
    ) -> None:
        self._free = self._index = index
        self._pipelines = pipelines
        self._power_w: float | None = None
        self._schedules = schedules
        self._unanswered = objective.index
        self._replica = replica
        self._replica_plans, self._reporter, self._pacer = replica_plans, reporter, pacer
        self._behind = behind
        self._off_pace, self._otherwise = False, 0  # of one replica, and for how many iterations in a row not
        self.changed_after: int | None = None
        self.power_capped = self.paces = self.has_slack = False
        self.observed: JobStatus | None = None
        self._choose()

    @property
    def plans(self) -> Sequence[float]:
        """The plans that all replicas run now."""
        return [self.plan] if self._replica_plans is None else self._replica_plans.plans

    @property
    def power_cap_cost(self) -> Mapping[str, float]:
        """The plan under the power cap, its power over all pipelines, and by how much it is slower."""
        free, index = self._free, self._index
        assert free is not None
        assert index is not None
        return {
            "plan": index.objective,
            "plan_w": float(index.power_w[index.objective]) * self._pipelines,
            "slowdown_pct": 100.0 * (index.objective_s / free.objective_s - 1.0),
        }

    @property
    def sync_time_s(self) -> float | None:
        """The iteration time at which all replicas meet; None while no replica waits."""
        return None if self._replica_plans is None else self._replica_plans.sync_time_s

    @property
    def awaited(self) -> Sequence[tuple[Straggler, Sequence[GpuAddress]]]:
        """The stragglers that others wait for, each with its devices."""
        return () if self._reporter is None else self._reporter.awaited

    @property
    def choices(self) -> int:
        """Return how many plans there are to choose from."""
        return len(self._schedules.iteration_time_s)

    @property
    def awaited_s(self) -> float:
        """Duration of an iteration that the objective's plan predicts, or that a straggler needs."""
        return self.objective_s if self.sync_time_s is None else self.sync_time_s

    @property
    def slack_s(self) -> float:
        """Return how much of that this replica would wait if it ran the objective's plan."""
        return max(0.0, self.awaited_s - self.objective_s)

    @property
    def answers(self) -> Mapping[str, object]:
        """Return what answers have cost and what pacing did so far; empty of one replica."""
        return {} if self._replica_plans is None else {"answers": self._replica_plans.account}

    def begin(self, index: int, loads: Sequence[Load] | None, *, settled: bool) -> ClockSchedule:
        """Return this stage's clocks in iteration ``index``, whose microbatches have ``loads`` if known.

        ``settled``: clocks were the plan's before, so that the iteration is judged by the plan, and paced.
        """
        if settled and self._replica_plans is not None:
            self._replica_plans.will_run(index)
            self._choose()
        if settled and self._pacer is not None and not self.power_capped:
            self.paces = True  # forecasts are of the objective's plan
            self._pacer.begins(index, loads)
        return self._schedule

    def paced_schedule(self) -> ClockSchedule | None:
        """Return the clocks of another plan once all replicas have reported their loads; else None."""
        if not self.paces or self._pacer is None or not self._pacer.changes():
            return None
        self._choose()
        return self._schedule

    def observe(self, index: int, job_status: JobStatus) -> None:
        """Take in what was exchanged while iteration ``index`` ran."""
        if self.paces and self._pacer is not None:
            self.paces = False
            self._pacer.ends()
        if job_status.power_w != self._power_w:
            self.hold(index, job_status.power_w)
        self.observed = job_status
        plans, iteration_s, changed = self._replica_plans, job_status.iteration_s, self.changed_after
        if plans is None:
            # an iteration that may have run by another plan than the present is not compared with it
            if iteration_s and (changed is None or index > changed + 2 + self._behind):
                late = iteration_s / self.objective_s > 1.0 + BEHIND
                self._otherwise = self._otherwise + 1 if late != self._off_pace else 0
                if self._otherwise >= CONFIRMATIONS:
                    self._off_pace, self._otherwise = late, 0
                    self._choose()
            return
        if job_status.replicas is not None:
            if plans.observe(index - 1 - self._behind, job_status.replicas):
                self.changed_after = index
            decision = plans.decision
            if decision is not None:
                waits = decision.sync_time_s is not None or bool(decision.ended)
                causes = {one.cause for one in decision.stragglers} if waits else set()
                self.has_slack = bool(causes - {Cause.FLAPPING})
                if self._reporter is not None:
                    self._reporter.report(decision, plans.plans)
        self._choose()

    def hold(self, index: int, power_w: float | None) -> None:
        """Take in the power cap that holds after iteration ``index``, whichever plan ran in it."""
        if self._free is None or power_w == self._power_w:
            return
        self._power_w = power_w
        limit_w = None if power_w is None else power_w / self._pipelines
        self._index = self._free if limit_w is None else self._free.below(limit_w)
        self.power_capped = limit_w is not None and self._free.default_w > limit_w
        self.changed_after = index
        if self._replica_plans is not None:
            self._replica_plans.restrict(self._index, index=index + 1)
        self._choose()

    def alone(self) -> None:
        """Run the objective's plan from now on, or what a power cap allows; whatever the others do."""
        self.close()
        self._replica_plans, self.paces, self.has_slack = None, False, False
        self._choose()

    def end_answers(self) -> None:
        """Run the objective's plan on beside any straggler: answers cost more than they may."""
        if self._replica_plans is not None:
            self._replica_plans.end_answers()
            self._choose()

    def close(self) -> None:
        """Report nothing any more; safe to call twice."""
        if self._pacer is not None:
            self._pacer.close()
            self._pacer = None

    def _choose(self) -> None:
        """Choose this stage's clocks; lower ones come ahead where iterations keep the plan's time.

        Where no replica waits they are of the objective's plan, or of the fastest below the power cap.
        """
        plans = self._replica_plans
        if self._index is not None:
            self._unanswered = self._index.objective
        self.objective_s = float(self._schedules.iteration_time_s[self._unanswered])
        self.plan: float = self._unanswered if plans is None else plans.plans[self._replica]
        on_pace = not self._off_pace if plans is None else plans.on_pace[self._replica]
        held = plans is not None and self._replica in plans.held
        if held and self.plan == 0 and not self.power_capped:
            self._schedule = self._schedules.highest  # the fastest plan lowers clocks too, at another pace
        else:
            self._schedule = self._schedules.of(self.plan, on_pace=on_pace)
