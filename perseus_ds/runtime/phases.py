"""Phases of a job, one after the other; each names the next one.

    WarmUp --> Calibrating --> Opened: by the start decision
      | mode observe                |-- a plan fits ---------------------------> Running
      v                             |-- a profile fits -------> Planning ------> Running
    Observing --> BaselineOnly      '-- nothing fits --> Sweeping --> Profiled --> Planning --> Running

After an iteration a phase gets what the device has finished and the status of the job, and returns the phase
of the next one, whose ``settings`` say how it runs. All ranks change phase at the same iteration: a phase
decides by the count of iterations and by what was reduced or gathered over all ranks, never by what one rank
sees.

From `Opened` on, batches of every size have a phase of their own (`Session`). `Sweeping` and `Observing` are
in `sweep.py`. `Running` runs an `ActivePlan`, which `planned_run.py` chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from perseus_ds.device.clock_change import Steps, calibration_steps
from perseus_ds.device.gpu import Capabilities, Gpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.run_directory.records import RankPlace
from perseus_ds.runtime.accounting import Mode, beside
from perseus_ds.runtime.channel import IterationPacer
from perseus_ds.runtime.clocks import DEFAULT_CLOCK, ClockSchedule, ClockSchedules, DeviceTask
from perseus_ds.runtime.context import Answer, JobContext, join_calibrations
from perseus_ds.runtime.event_log import StragglerReporter
from perseus_ds.runtime.kernel_tracing import SETTLING
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.runtime.status import JobStatus
from perseus_ds.schedule import Load
from perseus_ds.straggler.controller import Cause, Straggler
from perseus_ds.straggler.estimate import CONFIRMATIONS
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.replica_plans import BEHIND, ReplicaPlans


class ActivePlan:
    """The objective's plan, and with several replicas the plan that the controller decides.

    `begin` gives the clocks of an iteration, `observe` takes in what the ranks exchanged while it ran. Where
    there are several replicas ``replica_plans`` decides, ``reporter`` names stragglers and ``pacer`` shares
    loads. ``behind`` is how many iterations the exchanged numbers are older than the exchange. A power cap of
    the job, which ``pipelines`` share, restricts the frontier's ``index`` to plans below it.

    ``plan`` is what this replica runs, ``objective_s`` the iteration time that the objective's plan predicts
    (or the fastest below the power cap), ``observed`` the status that was exchanged last. ``power_capped``:
    default clocks would take more power than the job may. ``has_slack``: a replica waits for one that could
    be faster. ``changed_after`` is the iteration by whose exchange plans changed last. ``paces``:
    `paced_schedule` is to be asked before each computation of the present iteration.
    """

    def __init__(
        self,
        schedules: ClockSchedules,
        index: FrontierIndex,
        *,
        replica: int = 0,
        replica_plans: ReplicaPlans | None = None,
        reporter: StragglerReporter | None = None,
        pacer: IterationPacer | None = None,
        behind: int = 0,
        pipelines: int = 1,
    ) -> None:
        self._free = self._index = index
        self._pipelines = pipelines
        self._power_w: float | None = None
        self._schedules = schedules
        self._replica = replica
        self._replica_plans, self._reporter, self._pacer = replica_plans, reporter, pacer
        self._behind = behind
        self._off_pace, self._otherwise = False, 0  # of one replica, and for how many iterations in a row not
        self._since = self._begun = -1  # the iterations that this plan ran without another between them
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
        index = self._index
        return {
            "plan": index.objective,
            "plan_w": float(index.power_w[index.objective]) * self._pipelines,
            "slowdown_pct": 100.0 * (index.objective_s / self._free.objective_s - 1.0),
        }

    @property
    def sync_time_s(self) -> float | None:
        """The iteration time at which all replicas meet; None while no replica waits."""
        return None if self._replica_plans is None else self._replica_plans.sync_time_s

    @property
    def awaited(self) -> Sequence[tuple[Straggler, Sequence[RankPlace]]]:
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
        self._since, self._begun = self._since if index == self._begun + 1 else index, index
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
            # an iteration that may have run by another plan than the present is not compared with it,
            # nor one of other batches, or at default clocks
            ran = self._begun == index > self._since + 2
            if iteration_s and ran and (changed is None or index > changed + 2 + self._behind):
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
        if power_w == self._power_w:
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
        self._replica_plans = self._pacer = None
        self.paces = self.has_slack = False
        self._choose()

    def end_answers(self) -> None:
        """Run the objective's plan on beside any straggler: answers cost more than they may."""
        if self._replica_plans is not None:
            self._replica_plans.end_answers()
            self._choose()

    def _choose(self) -> None:
        """Choose this stage's clocks; lower ones come ahead where iterations keep the plan's time.

        Where no replica waits they are of the objective's plan, or of the fastest below the power cap.
        """
        plans, objective = self._replica_plans, self._index.objective
        self.objective_s = float(self._schedules.iteration_time_s[objective])
        self.plan: float = objective if plans is None else plans.plans[self._replica]
        on_pace = not self._off_pace if plans is None else plans.on_pace[self._replica]
        held = plans is not None and self._replica in plans.held
        if held and self.plan == 0 and not self.power_capped:
            self._schedule = self._schedules.highest  # the fastest plan lowers clocks too, at another pace
        else:
            self._schedule = self._schedules.of(self.plan, on_pace=on_pace)


@dataclass(frozen=True, slots=True)
class IterationSettings:
    """Settings of one iteration: the clocks that it runs by, and the account that it belongs to.

    ``plan`` brings the clocks of iterations that a plan runs, ``clocks`` are those of all others.
    ``settled``: the plan was in force before. ``rests``: the host's own time after it is spent at default
    clocks. ``task`` is done at the device from its begin on, for as long as settings name it.
    """

    clocks: ClockSchedule = DEFAULT_CLOCK
    mode: Mode = Mode.NEITHER
    rests: bool = False
    plan: ActivePlan | None = None
    settled: bool = False
    task: DeviceTask | None = None


DEFAULT_UNCOUNTED = IterationSettings()
"""Default clocks, counted for nothing."""


class Phase:
    """A phase of the job: ``settings`` of the coming iteration, and `next` after it."""

    settings: IterationSettings = DEFAULT_UNCOUNTED

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        """Return the phase after iteration ``index``: this one, unless a phase overrides it.

        ``passed`` are the iterations that the device has finished since the last call, ``job`` the status of
        all ranks in the iteration before, None where it is not known.
        """
        del index, passed, job
        return self


class BaselineOnly(Phase):
    """Nothing more to do: default clocks, counted as baseline."""

    settings = IterationSettings(mode=Mode.BASELINE)


class Planning(Phase):
    """Train on at default clocks until the plan arrives, which `BatchPlans` brings."""

    settings = IterationSettings(rests=True)


@dataclass(frozen=True)
class Opened(Phase):
    """Warm-up is over: the session goes on as the start decision says.

    ``iteration_s`` is how long an iteration takes, ``found`` what calibration has found of this rank's GPU.
    """

    iteration_s: float
    found: Capabilities | None = None


class Profiled(Phase):
    """The profile is written: the session goes on with a plan for the batches that all ranks run."""


class WarmUp(Phase):
    """Leave the first iterations alone, until their duration is known; calibrate ``gpu`` in the last of them.

    Where kernels are traced the GPU is calibrated after them, since traced iterations run at default clocks.
    """

    def __init__(self, context: JobContext, gpu: Gpu | None) -> None:
        self._context, self._gpu = context, gpu
        self._left = context.config.profile.warmup_iterations
        self._traced = bool(context.config.trace_kernels)
        if gpu is not None and self._traced:
            self._left = max(self._left, SETTLING)

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        """Go on when enough iterations have passed and their duration is known."""
        del index, passed
        self._left -= 1
        iteration_s = None if job is None else job.iteration_s
        if iteration_s is None:
            return self
        if self._gpu is None:
            return self if self._left > 0 else Opened(iteration_s)
        ahead = 0 if self._traced else calibration_iterations(self._context, iteration_s)
        return self if self._left > ahead else Calibrating(self._context, self._gpu, iteration_s)


# How long this job's GPUs take to change a clock, found out by its first iterations, under their own load.
#
# An idle GPU clocks down by itself, and shows nothing: that is what a GPU before the first iteration is.

_ALONE_S = 0.4
_CHANGES = 8
_BEAT_S = 0.05
_AGAIN_S = 0.02
_ROUNDS = 3
_SILENT = DeviceUnavailableError("the driver did not answer in time")


def calibration_iterations(context: JobContext, iteration_s: float) -> int:
    """Return how many iterations the whole calibration takes if changes are as declared."""
    several = context.channel.size > 1
    alone, together = (_stage_iterations(context, iteration_s, together=one) for one in (False, True))
    return alone + together * several


def _stage_iterations(context: JobContext, iteration_s: float, *, together: bool) -> int:
    change_s = (context.capabilities.switch_latency_s or 0.0) + _BEAT_S * together
    return max(1, math.ceil(max(_ALONE_S, _CHANGES * change_s) / iteration_s))


@dataclass(slots=True)
class Measurement:
    """A GPU's calibration in steps, again and again until it shows a latency; ``answer`` is the latest."""

    gpu: Gpu
    in_step: bool
    answer: Answer = _SILENT
    done: bool = False

    def steps(self) -> Steps[None]:
        """Measure; the GPU may do nothing just now, and work a moment later."""
        try:
            while not self.done:
                self.answer = yield from calibration_steps(self.gpu, in_step=self.in_step)
                self.done = self.answer.switch_latency_s is not None
                yield _AGAIN_S
        except DeviceError as error:
            self.answer, self.done = error, True


class Calibrating(Phase):
    """Measure rank 0's GPU alone, then all at once, while iterations run; then open with what was found.

    Calls of the GPUs of one node queue in the driver, so that a clock which all change at once comes later.
    ``together_s`` is the longest that any rank waited, and the latency that clocks are asked for ahead by.
    All ranks count the same iterations and exchange where they are after each round of them. A GPU that has
    shown nothing after a few keeps its declared latency, and so does one whose driver hangs.

    Cost: about a second's iterations, which count for nothing; one exchange for each round.
    """

    def __init__(self, context: JobContext, gpu: Gpu, iteration_s: float) -> None:
        self._context, self._gpu = context, gpu
        self._iteration_s = iteration_s
        self._alone: Answer | None = None
        self._begin_stage()

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        """See at the end of each round how far all are."""
        del index, passed
        iteration_s = None if job is None else job.iteration_s
        self._iteration_s = min(self._iteration_s, iteration_s or math.inf)
        self._left -= 1
        if self._left > 0:
            return self
        answers = self._answers()
        if self._rounds_left and not all(done for _, done in answers):
            self._begin_round()
            return self
        if self._alone is None:
            self._alone = answers[0][0]
            if self._context.channel.size > 1:
                self._begin_stage()
                return self
        context = self._context
        found, calibration = join_calibrations(
            context.capabilities, self._alone, [answer for answer, _ in answers], context.log
        )
        context.reckoning.able, context.reckoning.calibration = found, calibration
        return Opened(self._iteration_s, found)

    def _answers(self) -> list[tuple[Answer, bool]]:
        """Return what those who measure have found by now, and whether that is all; collective."""
        mine = self._measurement.answer, self._measurement.done
        channel = self._context.channel
        return [channel.broadcast(mine)] if self._alone is None else channel.gather(mine)

    def _begin_stage(self) -> None:
        together = self._alone is not None
        measures = together or self._context.channel.rank == 0
        self._measurement = Measurement(self._gpu, in_step=together)
        task = DeviceTask(self._measurement.steps()) if measures else None
        self.settings = IterationSettings(task=task)
        self._rounds_left = _ROUNDS
        self._begin_round()

    def _begin_round(self) -> None:
        self._rounds_left -= 1
        together = self._alone is not None
        self._left = _stage_iterations(self._context, self._iteration_s, together=together)


# How batches of one size run at their plan, iteration by iteration.

_EVER = 1 << 30


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Some iterations: what they count for, whether the plan is run, whether an audit is published first.

    One that ``settles`` lasts as long as the GPU's temperature needs.
    """

    mode: Mode
    iterations: int
    planned: bool
    publishes: bool = False
    settles: bool = False


class Running(Phase):
    """Run the plan; every so often a few iterations at default clocks, so that the saving is measured.

    The iteration in which clocks change counts for neither side. Nor do those in which the GPU still has the
    other side's temperature (``settling`` of them, at most a fifth of an audit's distance). Those beside a
    straggler count for sides of their own, those under a power cap for none. The first audit of a plan
    comes early, so that a measured figure does; their distance varies. ``audited`` publishes an audit, and
    returns another plan where it asks for one.
    """

    def __init__(
        self,
        active_plan: ActivePlan,
        audited: Callable[[], ActivePlan | None],
        *,
        every_iterations: int,
        audit_iterations: int,
        settling: int = 1,
    ) -> None:
        self.active_plan = active_plan
        self._audited = audited
        self._every = every_iterations
        self._audit = audit_iterations
        self._settling = min(settling, every_iterations // 5)
        self._random = Random(0)  # noqa: S311 - so that all ranks spread alike
        self._coming = self._stretches()
        self._enter(next(self._coming))
        self._waits = False
        self._state: tuple[object, ...] = ()
        self.settings = self._settings_of(changed=True, settled=False)

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        """Take in what was exchanged, and move on within the cycle of plan and audit."""
        del passed
        plan = self.active_plan
        if job is not None:
            plan.observe(index, job)
        changed = plan.changed_after == index
        if plan.power_capped != self._waits:
            changed |= self._postpones()
        self._left -= 1
        if self._left == 0:
            self._enter(next(self._coming))
            if self._present.publishes and (other := self._audited()) is not None:
                plan = self.active_plan = other
                changed = True
                self._coming = self._stretches()
                self._enter(next(self._coming))
        state = self._present, plan, changed, plan.power_capped, plan.has_slack
        if state != self._state:
            self._state, self.settings = state, self._settings_of(changed=changed)
        return self

    def alone(self) -> None:
        """Run the objective's plan on without audits: the other ranks do not answer any more."""
        self.active_plan.alone()
        self._coming = iter(())
        self._enter(_Stretch(Mode.PERSEUS, _EVER, planned=True))
        self._state, self.settings = (), self._settings_of(changed=True)

    def _postpones(self) -> bool:
        """Begin or cease to audit nothing, while default clocks would break a power cap.

        Returns whether that ends an audit. The cycle begins anew when the cap is over.
        """
        self._waits = self.active_plan.power_capped
        was_planned = self._present.planned
        if self._waits:
            self._enter(_Stretch(Mode.PERSEUS, _EVER, planned=True))
        else:
            self._coming = self._stretches(early=False)
            self._enter(next(self._coming))
            self._left += 1
        return not was_planned

    def _enter(self, stretch: _Stretch) -> None:
        self._present = stretch
        self._left = max(stretch.iterations, self._settling) if stretch.settles else stretch.iterations

    def _settings_of(self, *, changed: bool, settled: bool = True) -> IterationSettings:
        planned, plan = self._present.planned, self.active_plan
        mode = Mode.NEITHER if planned and (changed or plan.power_capped) else self._present.mode
        return IterationSettings(
            mode=beside(mode) if plan.has_slack else mode,
            rests=True,
            plan=plan if planned else None,
            settled=settled,
        )

    def _stretches(self, *, early: bool = True) -> Iterator[_Stretch]:
        every = min(self._every, 2 * self._audit) if early else self._every
        yield _Stretch(Mode.NEITHER, 1, planned=True, settles=True)
        while self._every:
            # distances vary by a third, so that audits are in step with nothing that recurs
            spread = max(1, every + self._random.randint(-(every // 3), every // 3))
            yield _Stretch(Mode.PERSEUS, spread, planned=True)
            yield _Stretch(Mode.NEITHER, 1, planned=False, settles=True)
            yield _Stretch(Mode.BASELINE, self._audit, planned=False)
            yield _Stretch(Mode.NEITHER, 2, planned=True, settles=True)
            yield _Stretch(Mode.PERSEUS, 1, planned=True, publishes=True)
            every = self._every
        while True:
            yield _Stretch(Mode.PERSEUS, _EVER, planned=True)
