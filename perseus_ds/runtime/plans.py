"""The plans of a job for batches of every size: found in the run directory, or made beside the training."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from perseus_ds.config import PerseusConfig
from perseus_ds.errors import PerseusError, PlanError
from perseus_ds.files import open_to_append, read_bounded
from perseus_ds.guard.spawn import own_environment
from perseus_ds.plan import read_plans
from perseus_ds.plan.file import MOST_BYTES, PlanRequest, dumps, write_request
from perseus_ds.run_directory.paths import RunDirectory, write_whole
from perseus_ds.run_directory.records import Summary
from perseus_ds.runtime.accounting import RankBooks
from perseus_ds.runtime.adapter import Adapter, Place
from perseus_ds.runtime.context import JobContext, find_profile, plan_request
from perseus_ds.runtime.job import Job, differences
from perseus_ds.runtime.phases import ActivePlan, BaselineOnly, Phase, Planning
from perseus_ds.runtime.planned_run import PlannedRun
from perseus_ds.runtime.recorder import Arrivals

# Which file holds a job's plan: batches of several sizes leave one each, and find it again.

_OF_A_SIZE = frozenset({"microbatches", "schedule"})


def find_plan(job: Job, directory: RunDirectory) -> tuple[Path, str] | PerseusError:
    """Return the plan for this job's batches, file and text, or the reason why no plan fits.

    Of several files the one for batches of this size gives the reason.
    """
    hint = f"use mode automatic once, which leaves {directory.plan.name} there"
    why: PerseusError = PlanError(f"no plan in {directory.path} yet", hint=hint)
    for file in (directory.plan, directory.plan_of(job.schedule.microbatches)):
        if file.exists():
            try:
                return file, _read_fitting(file, job)
            except PerseusError as error:
                why = error
    return why


def file_for(job: Job, directory: RunDirectory) -> Path:
    """Return where a new plan goes: beside the same job's plan for batches of another size, else instead."""
    beside = _is_of_another_size(job, directory)
    return directory.plan_of(job.schedule.microbatches) if beside else directory.plan


def _read_fitting(file: Path, job: Job) -> str:
    plans = read_plans(file)
    if not (wrong := differences(job.fingerprint, plans.fingerprint)):
        return dumps(plans)
    if not plans.fingerprint:
        raise PlanError(
            f"{file} was made for no job: it was planned from a table",
            hint="use mode automatic, or plan from this job's profile.json",
        )
    if _differ_in_size_alone(job.fingerprint, plans.fingerprint):
        theirs = plans.fingerprint["microbatches"]
        wrong = f"batches of {theirs} microbatches, this job's have {job.schedule.microbatches}"
        raise PlanError(f"{file} is this job's plan for {wrong}", hint="use mode automatic")
    raise PlanError(f"{file} was made for another job: {wrong}", hint="use mode automatic")


def _is_of_another_size(job: Job, directory: RunDirectory) -> bool:
    """Return whether the plan is this job's but for the size of its batches."""
    if not directory.plan.exists():
        return False
    try:
        theirs = read_plans(directory.plan).fingerprint
    except PerseusError:
        return False
    return _differ_in_size_alone(job.fingerprint, theirs)


def _differ_in_size_alone(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    same = {key: value for key, value in ours.items() if key not in _OF_A_SIZE}
    return not differences(same, theirs) and theirs.get("microbatches") != ours["microbatches"]


# Plan beside the training: a process of its own, polled, never waited for.

_MOST_LOG_BYTES = 16 << 20
_PATIENCE_S = 2.0

LONG_S = 60.0
"""Planning takes seconds; a user who waits this long wonders, and again after each time twice as long."""


def end_in_time(process: subprocess.Popen[bytes], *, patience_s: float = _PATIENCE_S) -> None:
    """End a process; one that a hung file system or driver keeps is left to the operating system.

    Cost: twice ``patience_s`` at most, mostly nothing.
    """
    for end in (process.terminate, process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return


class BackgroundPlanner:
    """A run of ``python -m perseus_ds.plan`` on rank 0, at low priority.

    A process and not a thread: the solver would hold the interpreter, and a fork would copy the communicators
    of the job. It reads the run directory's profile and writes the plan to ``file``.
    """

    def __init__(self, directory: RunDirectory, request: PlanRequest, file: Path) -> None:
        mark = file.stem.removeprefix("plan")
        self.file, self._began_s = file, time.monotonic()
        self._log = directory.path / f"planner{mark}.log"
        asked = directory.path / f"plan_request{mark}.json"
        write_request(asked, request)
        write_whole(self._log, "")
        with open_to_append(self._log) as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own module, our own files
                [sys.executable, "-P", "-m", "perseus_ds.plan", *map(str, (directory.profile, asked, file))],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=own_environment() | {"OMP_NUM_THREADS": "1"},
            )

    @property
    def lasted_s(self) -> float:
        """Seconds since it was begun."""
        return time.monotonic() - self._began_s

    def ready(self) -> bool:
        """Return whether the plan is there.

        Raises:
            PlanError: the planner ended without one; the message is its last line.
        """
        code = self._process.poll()
        if code is None or code == 0:
            return code == 0
        said = read_bounded(self._log, most_bytes=_MOST_LOG_BYTES).decode(errors="replace")
        lines = said.strip().splitlines() or [f"exit code {code}"]
        raise PlanError(f"planning failed: {lines[-1]}", hint=f"all of it in {self._log}")

    def wait(self) -> None:
        """Wait until it has ended, well or not."""
        self._process.wait()

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            end_in_time(self._process)


MOST = 4
"""Sizes that are served: a profile, plans and figures of many more would never settle."""


class BatchPlans:
    """The job in batches of every size (number of microbatches) that has trained, and what each is run by.

    A rank meets a new size by itself and notes its own order. It is joined when all ranks know that all of
    them ran it (`JobStatus.microbatches`): no rank waits for one that runs something else. Until then, where
    the orders make no schedule, and beyond ``MOST`` sizes, such batches run at default clocks and count for
    nothing. ``jobs`` are those joined, None where a size cannot be served. ``loads_known``: this rank knew
    the loads of the last batch of a size before it began.

    All ranks keep this alike and are asked at the same iteration; rank 0 alone reads and plans. One plan is
    made at a time, in the order in which they were asked for. Where it ``waits``, planning takes no time: on
    GPUs of which time passes only while they are used. ``taken`` plans have arrived so far; ``planner`` runs
    on rank 0 while one is made. ``summaries`` are what audits measured, by size, on rank 0.
    """

    def __init__(
        self,
        context: JobContext,
        adapter: Adapter,
        books: RankBooks,
        arrivals: Arrivals,
        *,
        waits: bool,
    ) -> None:
        self._context, self._adapter = context, adapter
        self._arrivals, self._waits = arrivals, waits
        self._books = books
        self.summaries: dict[int, Summary] = {}
        self.jobs: dict[int, Job | None] = {context.job.schedule.microbatches: context.job}
        self.loads_known: dict[int, bool] = {}
        self._places: dict[int, Place | PerseusError] = {}
        self._wanted: list[Job] = []
        self.taken = 0
        self.planner: BackgroundPlanner | None = None
        self._long_s = LONG_S

    def meet(self, size: int) -> None:
        """Note this rank's own order in batches of a size that is not joined yet."""
        if size not in self.jobs and size not in self._places and not self._full:
            try:
                self._places[size] = self._adapter.place()
            except PerseusError as error:
                self._places[size] = error

    def join(self, microbatches: int) -> Job | None:
        """Join a size that all ranks have met; collective the first time.

        Raises:
            SilentRankError: a rank fell silent.
        """
        if microbatches in self.jobs:
            return self.jobs[microbatches]
        if self._full:
            self._context.log.event_once(
                "batch_size_refused",
                f"batches of more than {MOST} numbers of microbatches: others than the first {MOST} run at "
                "default clocks",
                microbatches=microbatches,
            )
            return None
        everyone = self._context.channel.gather(self._places[microbatches])
        self.jobs[microbatches] = self._job_of(microbatches, everyone)
        return self.jobs[microbatches]

    def phase_for(self, microbatches: int) -> Phase:
        """Look for a plan, or ask for one; collective."""
        job = self.join(microbatches)
        if job is None:
            return BaselineOnly()
        text, why_not = self._context.channel.broadcast_result(lambda: self._look(job))
        if text:
            return self.run_plan(job, text)
        if why_not:
            self._context.log.event(
                "unplanned",
                f"batches of {microbatches} microbatches run at default clocks: {why_not}",
                microbatches=microbatches,
            )
            return BaselineOnly()
        return self.ask_for_plan(job)

    def ask_for_plan(self, job: Job) -> Phase:
        """Ask for a plan, made from the profile in the run directory."""
        self._wanted.append(job)
        self._context.log.event(
            "planning",
            f"{self._name(job)}planning beside the training",
            microbatches=job.schedule.microbatches,
        )
        self._start_next()
        return Planning()

    def run_plan(self, job: Job, text: str) -> Phase:
        """Run a plan that is there."""
        run = PlannedRun(
            replace(self._context, job=job),
            text,
            named=self._name(job),
            books=self._books,
            summaries=self.summaries,
            arrivals=self._arrivals,
            waits=self._waits,
            loads_known=self.loads_known.get(job.schedule.microbatches, False),
        )
        return run.phase()

    def shown(self, active_plan: ActivePlan, microbatches: int) -> Mapping[str, float]:
        """Return what monitors show of a plan that runs in batches of a size.

        ``rank0_*`` is what rank 0's GPU took in the iterations settled last; what audits measured is of the
        whole job.
        """
        scalars = {
            "plan": active_plan.plan,
            "straggler_time_s": active_plan.awaited_s,
            "slack_s": active_plan.slack_s,
        }
        if self._books.latest is not None:
            scalars["rank0_energy_per_iteration_j"], scalars["rank0_power_w"] = self._books.latest
        if (summary := self.summaries.get(microbatches)) is not None:
            energy_j, time_s = summary.perseus.energy_j, summary.perseus.iteration_time_s
            scalars |= {
                "energy_per_iteration_j": energy_j,
                "power_w": energy_j / time_s,
                "saving_pct": summary.saving_pct,
                "slowdown_pct": summary.slowdown_pct,
            }
        return scalars

    def ready(self) -> int:
        """Return how many plans are made, as rank 0 knows it.

        Raises:
            PlanError: the planner ended without one.
        """
        if self.planner is None:
            return self.taken
        if self._waits:
            self.planner.wait()
        ready = self.planner.ready()
        if not ready and self.planner.lasted_s >= self._long_s:
            self._log_long(self.planner.lasted_s)
        return self.taken + ready

    def take_next(self) -> tuple[int, Phase]:
        """Take the next plan, which all ranks know to be there: the size of its batches, and their phase."""
        job = self._wanted.pop(0)
        text: str = self._context.channel.broadcast_result(self._text)
        self.taken += 1
        self.close()
        self._start_next()
        return job.schedule.microbatches, self.run_plan(job, text)

    def close(self) -> None:
        """End what still runs beside the training."""
        if self.planner is not None:
            self.planner.close()
            self.planner = None

    @property
    def _full(self) -> bool:
        """Return whether no further size is served; alike on all ranks once all have joined a size."""
        return len(self.jobs) >= MOST

    def _job_of(self, microbatches: int, everyone: list[Place | PerseusError]) -> Job | None:
        """Pure, and so alike on all ranks."""
        log, first = self._context.log, self._context.job
        try:
            for one in everyone:
                if isinstance(one, PerseusError):
                    raise one
            places = [one for one in everyone if isinstance(one, Place)]
            schedule = self._adapter.schedule(places)
        except PerseusError as error:
            log.event(
                "batch_size_refused",
                f"batches of {microbatches} microbatches run at default clocks: {error}",
                microbatches=microbatches,
            )
            return None
        job = first.with_schedule(schedule, places[first.rank].left_out)
        log.event("batch_size", microbatches=microbatches, fingerprint=dict(job.fingerprint))
        return job

    def _name(self, job: Job) -> str:
        """Name the batches that a line is about, where there are several."""
        return f"batches of {job.schedule.microbatches} microbatches: " if len(self.jobs) > 1 else ""

    def _look(self, job: Job) -> tuple[str, str]:
        """Return the plan that there is, or why none can be made; both are empty where one can."""
        directory = self._context.directory
        plan = find_plan(job, directory)
        if not isinstance(plan, PerseusError):
            return plan[1], ""
        why_not = f"no plan in {directory.path} is for them"
        if self._context.config.mode == "run":
            return "", f"mode is run, and {why_not}"
        found = find_profile(job, directory)
        return "", f"{why_not}, and no profile to make one from: {found}" if isinstance(found, str) else ""

    def _start_next(self) -> None:
        if self.planner is None and self._wanted and self._context.job.rank == 0:
            job, directory = self._wanted[0], self._context.directory
            self._long_s = LONG_S
            request = plan_request(self._context, job)
            self.planner = BackgroundPlanner(directory, request, file_for(job, directory))

    def _log_long(self, lasted_s: float) -> None:
        self._long_s = 2 * lasted_s
        self._context.log.event(
            "still_planning",
            f"{self._name(self._wanted[0])}still planning after {lasted_s:.0f} s: it has low priority and "
            "waits while this host's processors are busy; until then clocks are the default",
            lasted_s=lasted_s,
        )

    def _text(self) -> str:
        """Read what the planner has written, for all ranks."""
        assert self.planner is not None
        return read_bounded(self.planner.file, most_bytes=MOST_BYTES).decode()


# How a job opens: with a plan that fits, with a profile that fits, or with nothing.


class StartAction(Enum):
    """The first thing to do after warm-up."""

    RUN = "run"
    PLAN = "plan"
    PROFILE = "profile"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Rank 0's decision, with its reason; ``plans`` is the text of the plan file for everyone, if any."""

    action: StartAction
    reason: str
    plans: str = ""


def decide(
    config: PerseusConfig, job: Job, directory: RunDirectory, *, can_lock: bool, why_not: str
) -> StartDecision:
    """Choose on rank 0 from the mode, what lies in the run directory, and what the device allows.

    Raises:
        PlanError: ``mode: run`` and the plan is missing, unreadable or made for another job.
    """
    if config.mode == "profile" and can_lock:
        return StartDecision(StartAction.PROFILE, "mode is profile")
    found = find_plan(job, directory)
    if config.mode == "observe" or not can_lock:
        unable = f"no clock can be set, so this job saves nothing: {why_not}"
        reason = "mode is observe" if config.mode == "observe" else unable
        return StartDecision(StartAction.OBSERVE, reason, "" if isinstance(found, PerseusError) else found[1])
    if not isinstance(found, PerseusError):
        file, text = found
        return StartDecision(StartAction.RUN, f"the plan {file} fits this job", text)
    if config.mode == "run":
        raise PlanError(f"perseus.mode is 'run': {found.message}", hint=found.hint)
    no_profile = ""
    if config.profile.reuse and directory.profile.exists():
        profile = find_profile(job, directory)
        if not isinstance(profile, str):
            reason = f"the profile {directory.profile} fits this job; {found.message}"
            return StartDecision(StartAction.PLAN, reason)
        no_profile = profile
    return StartDecision(StartAction.PROFILE, "; ".join(filter(None, [found.message, no_profile])))
