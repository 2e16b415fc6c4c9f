"""Replicas of two stages, one 1.2 times slower for a while: who runs what, when, and at what cost."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from jobs import events, lines, names
from ranks import Said, build, losses, run_ranks
from replicas import Book, planned_job, straggle

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, read_plans
from perseus_ds.runtime.accounting import Mode
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = pytest.mark.e2e

FORWARD_S = (0.4, 0.5)
STAGES = len(FORWARD_S)
SLOWDOWN = 1.2
SLOW_FROM, SLOW_TO, ITERATIONS = 20, 60, 80
STRAGGLER = 1


@dataclass(frozen=True)
class Job:
    replicas: int
    run_dir: Path
    content: dict[str, Any]
    said: list[Said]
    plans: PlanSet
    frontier_index: FrontierIndex

    @property
    def book(self) -> Book:
        book = self.said[0].value
        assert isinstance(book, Book)
        return book

    @property
    def waiting(self) -> list[int]:
        return [replica for replica in range(self.replicas) if replica != STRAGGLER]

    def played_by(self, replica: int) -> list[int]:
        return [row[replica] for row in self.book.plans]

    def energy_j(self, replica: int) -> list[float]:
        mine = [said.value.energy_j for said in self.said if said.rank % self.replicas == replica]
        return [float(total) for total in np.sum(mine, axis=0)]


def job_of(folder: Path, replicas: int) -> Job:
    content = planned_job(folder, ranks=replicas * STAGES, forward_s=FORWARD_S)
    spells = {STRAGGLER: [(SLOW_FROM, SLOW_TO, SLOWDOWN)]}
    said = run_ranks(replicas * STAGES, straggle, content, STAGES, spells, ITERATIONS)
    plans = read_plans(folder / "run" / "plan.json")
    return Job(replicas, folder / "run", content, said, plans, FrontierIndex.of(plans, Objective()))


@pytest.fixture(
    scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)], ids=["2 replicas", "4 replicas"]
)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return job_of(tmp_path_factory.mktemp("straggler"), request.param)


def plainly(rank: int, content: dict[str, Any], steps: int) -> list[str]:
    del rank
    return losses(build(content, stages=STAGES), steps)


def test_all_ranks_play_the_same_plans_and_train_as_without_us(job: Job) -> None:
    for other in job.said[1:]:
        assert other.value.plans == job.book.plans
        assert other.value.own_s == job.book.own_s
    plain = {key: value for key, value in job.content.items() if key != "perseus"}
    without = run_ranks(len(job.said), plainly, plain, len(job.book.losses))
    assert [said.value.losses for said in job.said] == [said.value for said in without]


def test_the_others_wait_within_3_iterations_and_are_back_within_2(job: Job) -> None:
    """Nobody waits before somebody is slow, and the straggler runs at full speed throughout."""
    objective = job.frontier_index.objective
    assert set(job.played_by(STRAGGLER)) == {job.frontier_index.fastest}
    for replica in job.waiting:
        played = job.played_by(replica)
        assert set(played[:SLOW_FROM]) == {objective}
        first = next(index for index in range(SLOW_FROM, SLOW_TO) if played[index] != objective)
        assert 0 < first - (SLOW_FROM + 1) <= 3
        assert objective not in played[first:SLOW_TO]
        back = next(index for index in range(SLOW_TO, ITERATIONS) if played[index] == objective)
        assert back - SLOW_TO <= 2
        assert set(played[back:]) == {objective}
        sys.stdout.write(
            f"\nreplica {replica} waits after {first - SLOW_FROM - 1}, is back after {back - SLOW_TO}"
        )


def test_the_job_is_as_fast_as_its_straggler(job: Job) -> None:
    """The slow iterations: the job's own duration against the straggler's at the same iterations."""
    straggler_s = fmean(job.book.own_s[index][STRAGGLER] for index in range(SLOW_FROM, SLOW_TO))
    job_s = (job.book.end_s[SLOW_TO - 1] - job.book.end_s[SLOW_FROM - 1]) / (SLOW_TO - SLOW_FROM)
    excess_pct = 100.0 * (job_s / straggler_s - 1.0)
    sys.stdout.write(f"\njob {job_s:.4f} s, straggler's own {straggler_s:.4f} s: {excess_pct:+.3f} %")
    assert excess_pct <= 0.5


def test_the_waiting_replica_is_within_1_percent_of_the_best_frontier_point(job: Job) -> None:
    """As planned, and truly: the best plan's energy for the true T' against what the GPUs took."""
    true_s = SLOWDOWN * job.frontier_index.fastest_s
    cost_j = job.plans.effective_energy_j + job.plans.blocking_total_w * true_s
    best_j = cost_j[job.frontier_index.expected_s <= true_s].min()
    for replica in job.waiting:
        chosen = job.played_by(replica)[SLOW_TO - 1]
        above_pct = 100.0 * (np.interp(chosen, np.arange(len(cost_j)), cost_j) / best_j - 1.0)
        default_j = fmean(job.energy_j(replica)[SLOW_FROM : SLOW_FROM + 3])
        truth_j = fmean(job.energy_j(replica)[SLOW_FROM + 4 : SLOW_TO])
        sys.stdout.write(
            f"\nreplica {replica}: plan {chosen} is {above_pct:.2f} % above the best frontier point for "
            f"T' = {true_s:.4g} s; truly {truth_j:.0f} J per iteration, unanswered {default_j:.0f} J"
        )
        assert job.frontier_index.predicted_s(np.array([chosen]))[0] <= true_s
        assert above_pct <= 1.0
        assert truth_j < 0.9 * default_j


def test_it_is_said_once_when_it_comes_and_once_when_it_goes_and_booked_apart(job: Job) -> None:
    beside = job.book.modes[SLOW_FROM + 4 : SLOW_TO]
    assert set(beside) <= {Mode.PERSEUS_BESIDE, Mode.NEITHER}
    assert beside.count(Mode.PERSEUS_BESIDE) > len(beside) // 2
    assert set(job.book.modes[SLOW_TO + 4 :]) == {Mode.PERSEUS}
    said = [line for line in lines(job.said[0]) if "replica 1" in line]
    assert ["straggler" in line for line in said] == [True, False]
    assert [lines(other) for other in job.said[1:]] == [[]] * (len(job.said) - 1)
    announced = [event for event in events(job.run_dir) if event["event"] == "straggler"]
    assert announced[0]["waiting"] == job.waiting
    assert names(job.run_dir).count("straggler_gone") == 1


def in_real_time(rank: int, content: dict[str, Any]) -> Book:
    return straggle(rank, content, STAGES, {STRAGGLER: [(8, 99, 1.6)]}, 18)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [{}, {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}],
    ids=["fp32", "zero 1 and bf16"],
)
def test_wherever_the_wait_moves_the_straggler_is_seen(tmp_path: Path, variant: dict[str, Any]) -> None:
    """In host time, with the engine's own has_slack: a busy host makes stragglers, so this one is slower."""
    scaled = {"simulated": {"forward_s": list(FORWARD_S), "time": "scaled", "time_scale": 0.05}}
    content = planned_job(tmp_path, ranks=4, forward_s=FORWARD_S, perseus=scaled, **variant)
    book = run_ranks(4, in_real_time, content)[0].value
    own_s = np.array(book.own_s)
    ratio = (own_s[8:11, STRAGGLER] / own_s[8:11, 0]).mean()  # not answered yet
    assert ratio > 1.1  # 1.6 on an idle host
    assert max(plan[0] for plan in book.plans[8:]) > book.plans[0][0]
