"""The plans of a job for batches of every size: found in the run directory, or made beside the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from perseus_ds.errors import PerseusError
from perseus_ds.files import read_bounded
from perseus_ds.plan.file import MOST_BYTES
from perseus_ds.profile import Profile, read_profile
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.job import Job, differences
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.phases import Phase, Planning, Unplanned
from perseus_ds.runtime.lifecycle.planned_run import PlannedRun, PlanWatchers
from perseus_ds.runtime.lifecycle.planning.batch_sizes import BatchSizes
from perseus_ds.runtime.lifecycle.planning.plan_files import files_for, found_plans
from perseus_ds.runtime.lifecycle.planning.plan_requests import plan_request
from perseus_ds.runtime.lifecycle.planning.planner import BackgroundPlanner, LongPlanning, PlanJob


@dataclass(frozen=True, slots=True)
class _FoundPlans:
    """What rank 0 found: plans, or that they can be made, or why neither."""

    texts: tuple[str, ...] = ()
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
        found: _FoundPlans = self._context.channel.broadcast_result(lambda: self._look(job))
        if found.texts:
            return self.running(job, found.texts)
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

    def running(self, job: Job, texts: tuple[str, ...]) -> Phase:
        """Run plans that are there."""
        run = PlannedRun(
            replace(self._context, job=job),
            texts,
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
        texts: list[str] = self._context.channel.broadcast_result(self._texts)
        self._taken += 1
        self.close()
        self._start_next()
        return job.schedule.microbatches, self.running(job, tuple(texts))

    def close(self) -> None:
        """End what still runs beside the training."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _named(self, job: Job) -> str:
        """Name the batches that a line is about, where there are several."""
        return f"batches of {job.schedule.microbatches} microbatches: " if self.sizes.several else ""

    def _look(self, job: Job) -> _FoundPlans:
        context = self._context
        plans, _ = found_plans(job, context.directory)
        if plans:
            return _FoundPlans(tuple(plans.values()))
        why_not = f"no plan in {context.directory.path} is for them"
        if context.config.mode == "run":
            return _FoundPlans(why_not=f"mode is run, and {why_not}")
        try:
            for group in range(len(job.groups)):
                _fitting_profile(context, job, group)
        except PerseusError as error:
            return _FoundPlans(why_not=f"{why_not}, and no profile to make one from: {error}")
        return _FoundPlans()

    def _start_next(self) -> None:
        if self._planner is None and self._wanted and self._context.job.rank == 0:
            job, directory = self._wanted[0], self._context.directory
            self._long = LongPlanning()
            self._planner = BackgroundPlanner(
                directory,
                [
                    PlanJob(plan_request(self._context, job, group), directory.profile_of(group), file)
                    for group, file in enumerate(files_for(job, directory))
                ],
            )

    def _tell_if_long(self, lasted_s: float) -> None:
        if self._long.is_due(lasted_s):
            self._context.log.event(
                "still_planning",
                f"{self._named(self._wanted[0])}still planning after {lasted_s:.0f} s: it has low priority "
                "and waits while this host's processors are busy; until then clocks are the default",
                lasted_s=lasted_s,
            )

    def _texts(self) -> list[str]:
        """What the planner has written, for all ranks."""
        assert self._planner is not None
        return [read_bounded(file, most_bytes=MOST_BYTES).decode() for file in self._planner.files]


def _fitting_profile(context: JobContext, job: Job, group: int) -> Profile:
    directory = context.directory
    profile = read_profile(directory.profile_of(group), writers=directory.writers)
    if wrong := differences(job.profile_fingerprint(group), profile.fingerprint):
        raise PerseusError(f"{context.directory.profile_of(group)} is of another job: {wrong}")
    return profile
