"""A job as a table: what batches of each size run, what they count for, when their plan comes, who leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from hand_made import two_plans

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import EngineError, SilentRankError
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.active_plan import ActivePlan
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.clock_sequencer import ClockSchedules, fixed_clock
from perseus_ds.runtime.phases import IterationResult, IterationSettings, Phase, Planning, Running
from perseus_ds.runtime.plans import StartAction, StartDecision
from perseus_ds.runtime.session import Lifecycle
from perseus_ds.runtime.status import JobStatus


class At(Phase):
    """Run at one clock, and count the iterations that reach this phase."""

    def __init__(self, clock_mhz: int) -> None:
        self.settings = IterationSettings(fixed_clock(clock_mhz), Mode.PERSEUS, rests=True)
        self.iterations = 0

    def next_phase(self, ended: IterationResult) -> Phase:
        assert ended.iteration_s == 1.0
        self.iterations += 1
        return self


class Plans:
    """Has the plan of the first size, and makes that of another when it is told to."""

    def __init__(self, first: Phase) -> None:
        self.first = first
        self.asked: list[int] = []
        self.made: dict[int, Phase] = {}
        self.taken = 0
        self.sizes = MagicMock()

    def running(self, *_: object) -> Phase:
        return self.first

    def ready(self) -> int:
        return 0

    def phase_for(self, microbatches: int) -> Phase:
        self.asked.append(microbatches)
        return Planning()

    def arrived(self, plans_ready: int) -> tuple[int, Phase] | None:
        if plans_ready <= self.taken:
            return None
        self.taken += 1
        size = self.asked[self.taken - 1]
        self.made[size] = At(100 * size)
        return size, self.made[size]


GOOD = JobStatus(failed=False, plans_ready=0, iteration_s=1.0)


class Job:
    """A lifecycle whose first batches, of 4 microbatches, have passed the warm-up and run ``first``."""

    def __init__(self, first: Phase) -> None:
        self.plans = Plans(first)
        self.status_exchange, context = MagicMock(), MagicMock()
        self.status_exchange.someone_failed.return_value = False
        context.job.schedule.microbatches = 4
        context.config.profile.warmup_iterations = 1
        self.log, self.context = context.log, context
        self.lifecycle = self.begun(StartAction.RUN, MagicMock())
        self.index = 0
        self.iteration(4, GOOD)

    def begun(self, action: StartAction, sweeping: MagicMock) -> Lifecycle:
        return Lifecycle(
            self.context,
            StartDecision(action, "a plan fits"),
            sweeping=sweeping,
            calibrator=None,
            status_exchange=self.status_exchange,
            plans=cast("Any", self.plans),
            scalars=MagicMock(wanted=False),
        )

    def profiling(self, *phases: Phase) -> Lifecycle:
        """Begin with these, one after the other."""
        return self.begun(StartAction.PROFILE, MagicMock(profiling=MagicMock(side_effect=list(phases))))

    def iteration(self, size: int, status: JobStatus | Exception | None) -> str:
        """One letter: what its clock is in hundreds, small where it counts for neither side."""
        self.status_exchange.turn.side_effect = [status]
        self.lifecycle.begins(self.index, Batch(size))
        step = self.lifecycle.settings
        self.leaving = self.lifecycle.advance(self.index, [])
        self.index += 1
        clock = step.clocks.opening[0].clock_mhz if step.plan is None else 1600
        letter = "d" if clock is None else "abcdefghijklmnopq"[clock // 100]
        return letter.upper() if step.mode is Mode.PERSEUS else letter

    def walk(self, sizes: str, ready: str) -> str:
        row, before = [], None
        for size, plans_ready in zip(sizes, ready, strict=True):
            row.append(
                self.iteration(int(size), replace(GOOD, plans_ready=int(plans_ready), microbatches=before))
            )
            before = int(size)
        return "".join(row)


def test_each_size_runs_its_own_plan_and_the_change_counts_for_neither() -> None:
    job = Job(At(400))
    assert job.walk("44488888844", "00000011111") == "EEEddddIIeE"
    assert job.plans.asked == [8]


def test_a_size_moves_on_with_its_own_iterations_alone() -> None:
    four = At(400)
    Job(four).walk("4488884", "0000000")
    assert four.iterations == 3


def test_sizes_are_asked_for_once_and_taken_in_turn() -> None:
    job = Job(At(400))
    job.walk("2266224466", "0000112222")
    assert job.plans.asked == [2, 6]
    assert set(job.plans.made) == {2, 6}


def running() -> Running:
    plans = two_plans()
    schedules = ClockSchedules(plans, pipeline_rank=0, change=ClockChange.lasting(0.02))
    plan = ActivePlan(schedules, plans.plan(1))
    return Running(plan, every_iterations=3, audit_iterations=2, audited=MagicMock(return_value=None))


def test_where_nobody_answers_the_plan_runs_on_without_audits() -> None:
    job = Job(running())
    rows = [job.iteration(4, SilentRankError("a rank fell silent"))]
    rows += [job.iteration(4, None) for _ in range(20)]
    assert "".join(rows) == "q" + 20 * "Q"
    assert [call.args[0] for call in job.log.event.call_args_list].count("alone") == 1
    job.lifecycle.tell_failure()
    job.status_exchange.fail.assert_not_called()


def events(job: Job) -> list[str]:
    return [call.args[0] for call in job.log.event.call_args_list]


def test_where_nobody_answers_a_job_without_a_plan_stays_at_default_clocks() -> None:
    job = Job(Planning())
    rows = [job.iteration(4, SilentRankError("a rank fell silent"))]
    rows += [job.iteration(4, replace(GOOD, microbatches=8, plans_ready=1)) for _ in range(3)]
    assert "".join(rows) == "dddd"
    assert job.plans.asked == [], "nothing is exchanged, nothing is planned"
    assert events(job).count("alone") == 1


def test_what_is_no_silence_ends_it() -> None:
    job = Job(Planning())
    with pytest.raises(EngineError, match="different batches"):
        job.iteration(4, EngineError("different batches"))
    job.lifecycle.tell_failure()
    job.status_exchange.fail.assert_called_once_with()


class Opening(Phase):
    """What a job opens with: it exchanges with the others, and leaves something under way."""

    def __init__(self, *silent: bool) -> None:
        self.settings = IterationSettings(fixed_clock(400))
        self.silent, self.under_way = list(silent), True

    def next_phase(self, ended: IterationResult) -> Phase:
        if self.silent and self.silent.pop(0):
            raise SilentRankError("a rank fell silent while gathering")
        return self

    def parted(self) -> None:
        self.under_way = False


def opening(*phases: Opening) -> Job:
    job = Job(At(400))
    job.lifecycle = job.profiling(*phases)
    job.iteration(4, GOOD)
    return job


def test_a_profile_that_lost_a_rank_is_not_gone_on_with() -> None:
    first = Opening(False, True)
    job = opening(first)
    rows = [job.iteration(4, GOOD), job.iteration(4, GOOD)]
    assert not first.under_way
    rows += [job.iteration(4, GOOD) for _ in range(3)]
    assert "".join(rows) == "eeddd", "default clocks"
    assert events(job)[-1] == "alone"


def test_all_leave_where_one_failed_or_trains_batches_of_another_size() -> None:
    job = Job(At(400))
    job.iteration(4, replace(GOOD, failed=True))
    assert job.leaving is not None
    assert (job.leaving.silent, job.leaving.tells) == (True, False)
    job.iteration(4, replace(GOOD, sizes=(4, 6)))
    assert job.leaving is not None
    assert "6 microbatches" in str(job.leaving.error)
