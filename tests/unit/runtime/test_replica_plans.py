"""Ranks keep the same account and change at the same iteration: the plan of each replica, and its line."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from lone_job import logging_in
from schedules import clocks_of_stage, two_plans

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import PlanSet
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.clocks import ClockSchedules
from perseus_ds.runtime.event_log import StragglerReporter
from perseus_ds.runtime.phases import ActivePlan, Running
from perseus_ds.runtime.status import JobStatus
from perseus_ds.straggler.controller import ReplicaStatus
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.replica_plans import ReplicaPlans

PLANS = two_plans()
OBJECTIVE = Objective()
SLOWED = 1.5  # slow enough for the hand-made plan of 8 s beside one of 6 s
CHANGE = ClockChange(0.0, 0.02, 0.02)


class Job:
    """Two replicas of one stage pipeline each: what they run follows from what is exchanged."""

    def __init__(self, folder: Path, *, behind: int = 0, every: int = 0, asks: PlanSet = PLANS) -> None:
        self.behind = behind
        self.announced, self.capped = np.ones(2), np.zeros(2, np.bool_)
        self.power_w: float | None = None
        self.frontier_index = index = FrontierIndex.of(PLANS, OBJECTIVE)
        names = "replica 0", "replica 1"
        reporter = StragglerReporter(logging_in(folder), PLANS, gpus=((), ()), names=names)
        self.parts = [
            ActivePlan(
                ClockSchedules(asks, pipeline_rank=0, change=CHANGE),
                index,
                replica=replica,
                replica_plans=ReplicaPlans(index, 2),
                reporter=None if replica else reporter,
                behind=behind,
                pipelines=2,
            )
            for replica in (0, 1)
        ]
        self.audits = 0
        self.ranks = [
            Running(active_plan, self.audited, every_iterations=every, audit_iterations=2)
            for active_plan in self.parts
        ]
        self._own_s: list[np.ndarray] = []

    def play(self, iterations: int, *, slow: float = 1.0) -> list[tuple[object, ...]]:
        """Return what each replica plays (None: default clocks) in each iteration."""
        return [self._iteration(slow) for _ in range(iterations)]

    def _iteration(self, slow: float) -> tuple[object, ...]:
        index, row = len(self._own_s), []
        for rank, active_plan in zip(self.ranks, self.parts, strict=True):
            settings = rank.settings
            if settings.plan is not None:
                settings.plan.begin(index, None, settled=settings.settled)
            row.append(None if settings.plan is None else int(active_plan.plan))
        expected_s, default_s = self.frontier_index.expected_s, PLANS.baseline.iteration_time_s
        own_s = [default_s if plan is None else expected_s[plan] for plan in row]
        self._own_s.append(np.array(own_s) * (1.0, slow))
        about = index - 1 - self.behind
        known_s = self._own_s[about] if about >= 0 else np.full(2, np.nan)
        status = ReplicaStatus(known_s, self.capped, self.announced)
        for rank in self.ranks:
            rank.next(index, [], JobStatus(False, False, 6.0, (), status, power_w=self.power_w))
        return tuple(row)

    def audited(self) -> None:
        self.audits += 1

    def straggle(self, iterations: int = 10) -> list[tuple[object, ...]]:
        """Play some iterations as usual, then those in which replica 1 is slow."""
        self.play(20)
        return self.play(iterations, slow=SLOWED)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.parametrize(("behind", "within"), [(0, 2), (1, 3)], ids=["host", "cuda"])
def test_the_other_waits_soon_and_is_back_soon(tmp_path: Path, behind: int, within: int) -> None:
    job = Job(tmp_path, behind=behind)
    rows, second_slow = job.straggle(), 1
    assert rows.index((1, 0)) == second_slow + within
    assert set(rows[second_slow + within :]) == {(1, 0)}
    assert job.play(10) == [(1, 0)] * within + [(0, 0)] * (10 - within)


@pytest.mark.parametrize("behind", [0, 1], ids=["host", "cuda"])
def test_numbers_are_judged_by_the_plan_of_the_iteration_that_they_are_of(behind: int) -> None:
    """On CUDA they come one iteration later: by then another plan may run."""
    index = FrontierIndex.of(PLANS, OBJECTIVE)
    plans = ReplicaPlans(index, 2)
    plans.observe = observe = MagicMock(wraps=plans.observe)
    schedules = ClockSchedules(PLANS, pipeline_rank=0, change=CHANGE)
    plan = ActivePlan(schedules, index, replica_plans=plans, behind=behind)
    status = ReplicaStatus(np.full(2, 6.0), np.zeros(2, np.bool_), np.ones(2))
    for ended in range(5, 8):
        plan.observe(ended, JobStatus(False, False, 6.0, (), status))
    about = [call.args[0] for call in observe.call_args_list]
    assert about == [ended - 1 - behind for ended in range(5, 8)]


def test_what_is_announced_holds_from_the_next_iteration_on(job: Job) -> None:
    job.play(20)
    job.announced = np.array([1.0, SLOWED])
    assert job.play(3) == [(0, 0), (1, 0), (1, 0)]
    job.announced = np.ones(2)
    assert job.play(3) == [(1, 0), (0, 0), (0, 0)]


def test_audits_confuse_nobody(tmp_path: Path) -> None:
    job = Job(tmp_path, every=5)
    rows = job.play(100)
    assert set(rows) == {(0, 0), (None, None)}
    assert job.audits > 5


def test_audits_beside_a_straggler_are_booked_apart(tmp_path: Path) -> None:
    job, seen = Job(tmp_path, every=6), set()
    job.play(30, slow=SLOWED)
    for _ in range(20):
        job.play(1, slow=SLOWED)
        seen.add(job.ranks[0].settings.mode)
    assert seen == {Mode.NEITHER, Mode.BASELINE_BESIDE, Mode.PERSEUS_BESIDE}


def test_the_expected_saving_is_against_default_clocks_beside_the_same_straggler(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    """Default clocks: 1000 J of effective energy and 100 W for 9 s; plan 1: 800 J and the same."""
    job.straggle(20)
    assert f"{100 * (1 - (800 + 900) / (1000 + 900)):.1f} % energy" in capsys.readouterr().err


def asked_mhz(active_plan: ActivePlan) -> set[int | None]:
    schedule = active_plan.begin(1 << 20, None, settled=False)
    return {ask.clock_mhz for asks in (schedule.opening, *schedule.during, *schedule.over) for ask in asks}


def test_a_straggler_held_down_asks_for_its_highest_clock_until_it_has_recovered(tmp_path: Path) -> None:
    job = Job(tmp_path, asks=replace(PLANS, choice=np.array([[1, 0, 0, 0], [0, 1, 1, 1]], np.uint8)))
    job.play(20)
    assert asked_mhz(job.parts[1]) == {1400, 1000}, "the fastest plan"
    job.capped = np.array([False, True])
    assert set(job.play(20)) == {(0, 0)}
    assert asked_mhz(job.parts[1]) == {1400, 1000}, "it keeps its plan's time all the same"
    assert job.play(20, slow=SLOWED)[-1] == (1, 0)
    assert asked_mhz(job.parts[1]) == {1400}
    job.play(10)
    assert asked_mhz(job.parts[1]) == {1400, 1000}


def test_where_answers_end_nobody_waits_and_the_straggler_stays_named(job: Job) -> None:
    assert job.straggle()[-1] == (1, 0)
    for active_plan in job.parts:
        active_plan.end_answers()
    assert set(job.play(30, slow=SLOWED)) == {(0, 0)}
    assert [one.replica for one, _ in job.parts[0].awaited] == [1]
    assert set(job.play(30)) == set(job.play(20, slow=SLOWED)) == {(0, 0)}


def test_alone_everyone_returns_to_the_objectives_plan(job: Job) -> None:
    assert job.straggle()[-1] == (1, 0)
    for rank in job.ranks:
        rank.alone()
    assert [active_plan.plan for active_plan in job.parts] == [0, 0]


def test_a_clock_schedule_is_made_once_and_is_the_stages_part_of_the_plan() -> None:
    schedules = ClockSchedules(PLANS, pipeline_rank=1, change=CHANGE)
    schedule = schedules.of(1)
    assert schedule.opening[0].clock_mhz == clocks_of_stage(PLANS.plan(1), 1)[0]
    assert len(schedule.during) == len(schedule.over) == 2
    assert schedules.of(1) is schedule


FAST_W, SLOW_W = (2.0 * float(power) for power in FrontierIndex.of(PLANS, OBJECTIVE).power_w)
"""Energy of both replicas together at the plans of 6 s and of 8 s."""


def test_under_a_power_cap_all_run_the_fastest_plan_below_it_and_come_back(job: Job) -> None:
    job.power_w = FAST_W
    assert set(job.play(3)) == {(0, 0)}
    job.power_w = FAST_W - 1.0
    assert job.play(4)[1:] == [(1, 1)] * 3
    assert job.parts[0].power_cap_cost["slowdown_pct"] == pytest.approx(100.0 / 3.0)
    job.power_w = 0.5 * SLOW_W
    assert set(job.play(3)) == {(1, 1)}, "the slowest plan runs where none is below it"
    job.power_w = None
    assert job.play(4)[1:] == [(0, 0)] * 3
