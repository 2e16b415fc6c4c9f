"""The plans of a job for batches of every size: found in the run directory, or made beside the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from perseus_ds.errors import PerseusError
from perseus_ds.files import read_bounded
from perseus_ds.plan.file import MOST_BYTES
from perseus_ds.profile import read_profile
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.job import Job, differences
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.phases import Phase, Planning, Unplanned
from perseus_ds.runtime.lifecycle.planned_run import PlannedRun, PlanWatchers
from perseus_ds.runtime.lifecycle.planning.batch_sizes import BatchSizes
from perseus_ds.runtime.lifecycle.planning.plan_files import file_for, found_plan
from perseus_ds.runtime.lifecycle.planning.plan_requests import plan_request
from perseus_ds.runtime.lifecycle.planning.planner import BackgroundPlanner, LongPlanning, PlanJob


@dataclass(frozen=True, slots=True)
class _FoundPlan:
    """The plan that rank 0 found, or why none can be made; both are empty where it can."""

    text: str = ""
    why_not: str = ""


class BatchPlans:
    """State what batches of a size are run by, and bring their plan when it is ready.

    All ranks keep this alike and are asked at the same iteration; rank 0 alone reads and plans. One plan is
    made at a time, in the order in which they were asked for. Where it ``waits``, planning takes no time: on
    GPUs of which time passes only while they are used.
    """

    def __init__(
        self,
        context: JobContext,
        sizes: BatchSizes,
        watchers: PlanWatchers,
        *,
        waits: bool,
    ) -> None:
        self._context = context
        self.sizes = sizes
        self._watchers = watchers
        self._waits = waits
        self._wanted: list[Job] = []
        self._taken = 0
        self._planner: BackgroundPlanner | None = None
        self._long = LongPlanning()

    def phase_for(self, microbatches: int) -> Phase:
        """Look for a plan, or ask for one; collective."""
        job = self.sizes.join(microbatches)
        if job is None:
            return Unplanned()
        found: _FoundPlan = self._context.channel.broadcast_result(lambda: self._look(job))
        if found.text:
            return self.running(job, found.text)
        if found.why_not:
            self._context.log.event(
                "unplanned",
                f"batches of {microbatches} microbatches run at default clocks: {found.why_not}",
                microbatches=microbatches,
            )
            return Unplanned()
        return self.planning(job)

    def planning(self, job: Job) -> Phase:
        """Ask for a plan, made from the profile in the run directory."""
        self._wanted.append(job)
        self._context.log.event(
            "planning",
            f"{self._named(job)}planning beside the training",
            microbatches=job.schedule.microbatches,
        )
        self._start_next()
        return Planning()

    def running(self, job: Job, text: str) -> Phase:
        """Run a plan that is there."""
        run = PlannedRun(
            replace(self._context, job=job),
            text,
            named=self._named(job),
            watchers=self._watchers,
            waits=self._waits,
            loads_known=self.sizes.loads_known(job.schedule.microbatches),
        )
        return run.phase()

    def shown(self, active_plan: ActivePlan, microbatches: int) -> Mapping[str, float]:
        """What monitors show of a plan that runs in batches of a size."""
        return {
            "plan": active_plan.plan,
            "straggler_time_s": active_plan.awaited_s,
            "slack_s": active_plan.slack_s,
        } | self._watchers.audits.shown(microbatches)

    def ready(self) -> int:
        """How many plans are made, as rank 0 knows it.

        Raises:
            PlanError: the planner ended without one.
        """
        if self._planner is None:
            return self._taken
        if self._waits:
            self._planner.wait()
        ready = self._planner.ready()
        if not ready:
            self._tell_if_long(self._planner.lasted_s)
        return self._taken + ready

    def arrived(self, plans_ready: int) -> tuple[int, Phase] | None:
        """Take the next plan once all ranks know that it is there, and what runs it; collective then."""
        if plans_ready <= self._taken:
            return None
        job = self._wanted.pop(0)
        text: str = self._context.channel.broadcast_result(self._text)
        self._taken += 1
        self.close()
        self._start_next()
        return job.schedule.microbatches, self.running(job, text)

    def close(self) -> None:
        """End what still runs beside the training."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _named(self, job: Job) -> str:
        """Name the batches that a line is about, where there are several."""
        return f"batches of {job.schedule.microbatches} microbatches: " if self.sizes.several else ""

    def _look(self, job: Job) -> _FoundPlan:
        context = self._context
        plan, _ = found_plan(job, context.directory)
        if plan is not None:
            return _FoundPlan(plan[1])
        why_not = f"no plan in {context.directory.path} is for them"
        if context.config.mode == "run":
            return _FoundPlan(why_not=f"mode is run, and {why_not}")
        try:
            _check_profile(context, job)
        except PerseusError as error:
            return _FoundPlan(why_not=f"{why_not}, and no profile to make one from: {error}")
        return _FoundPlan()

    def _start_next(self) -> None:
        if self._planner is None and self._wanted and self._context.job.rank == 0:
            job, directory = self._wanted[0], self._context.directory
            self._long = LongPlanning()
            request = plan_request(self._context, job)
            self._planner = BackgroundPlanner(
                directory, [PlanJob(request, directory.profile, file_for(job, directory))]
            )

    def _tell_if_long(self, lasted_s: float) -> None:
        if self._long.is_due(lasted_s):
            self._context.log.event(
                "still_planning",
                f"{self._named(self._wanted[0])}still planning after {lasted_s:.0f} s: it has low priority "
                "and waits while this host's processors are busy; until then clocks are the default",
                lasted_s=lasted_s,
            )

    def _text(self) -> str:
        """Read what the planner has written, for all ranks."""
        assert self._planner is not None
        return read_bounded(self._planner.files[0], most_bytes=MOST_BYTES).decode()


def _check_profile(context: JobContext, job: Job) -> None:
    directory = context.directory
    profile = read_profile(directory.profile, writers=directory.writers)
    if wrong := differences(job.profile_fingerprint, profile.fingerprint):
        raise PerseusError(f"{directory.profile} is of another job: {wrong}")
