"""Replicas in virtual time: stragglers, slow GPUs, power caps, and a rank that falls silent."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from jobs import events, lines, names
from ranks import PipelineEngine, Said, run_ranks
from replicas import CAPS, SPELLS, Book, Case, compare, losses_without_us, planned_job, straggle

import perseus_ds
from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, read_plans, select
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import read_places
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.attach import session_of
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = pytest.mark.e2e

FORWARD_S = (0.4, 0.5)
STAGES = len(FORWARD_S)
STRAGGLER, SLOWDOWN = 1, 1.2


@dataclass(frozen=True)
class Job:
    """Books of all ranks, and the frontier of the plans that they run."""

    replicas: int
    run_dir: Path
    content: dict[str, Any]
    said: list[Said]
    plans: PlanSet

    @property
    def book(self) -> Book:
        return self.said[0].value

    @cached_property
    def index(self) -> FrontierIndex:
        return FrontierIndex.of(self.plans, Objective())

    @property
    def waiting(self) -> list[int]:
        return [replica for replica in range(self.replicas) if replica != STRAGGLER]

    def played_by(self, replica: int) -> list[float]:
        return [row[replica] for row in self.book.plans]

    def lasts_s(self, start: int, end: int) -> float:
        return (self.book.end_s[end - 1] - self.book.end_s[start - 1]) / (end - start)

    def energy_j(self, replica: int, start: int, end: int) -> float:
        """The mean of some iterations."""
        mine = [said.value.energy_j[start:end] for said in self.said if said.rank % self.replicas == replica]
        return float(np.sum(mine)) / (end - start)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of two replicas with its profile and its plan, to be copied."""
    return planned_job(tmp_path_factory.mktemp("planned"), ranks=4, forward_s=FORWARD_S, profiled=True)


def copied(planned: dict[str, Any], run_dir: Path, **changes: object) -> dict[str, Any]:
    shutil.copytree(planned["perseus"]["run_dir"], run_dir)
    return planned | {"perseus": planned["perseus"] | {"run_dir": str(run_dir)} | changes}


# One replica is 1.2 times slower for a while: who runs what, when, and at what cost.

SLOW_FROM, SLOW_TO, ITERATIONS = 20, 60, 80


@pytest.fixture(
    scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)], ids=["2 replicas", "4 replicas"]
)
def job(
    request: pytest.FixtureRequest, planned: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Job:
    folder, replicas = tmp_path_factory.mktemp("straggler"), request.param
    if replicas == 2:
        content = copied(planned, folder / "run")
    else:
        content = planned_job(folder, ranks=replicas * STAGES, forward_s=FORWARD_S)
    spells = {STRAGGLER: [(SLOW_FROM, SLOW_TO, SLOWDOWN)]}
    said = run_ranks(replicas * STAGES, straggle, content, STAGES, spells, ITERATIONS)
    return Job(replicas, folder / "run", content, said, read_plans(folder / "run" / "plan.json"))


def test_all_ranks_play_the_same_plans_and_train_as_without_us(job: Job) -> None:
    for other in job.said[1:]:
        assert other.value.plans == job.book.plans
        assert other.value.own_s == job.book.own_s
    plain = losses_without_us(job.content, STAGES, len(job.said), len(job.book.losses))
    assert [said.value.losses for said in job.said] == plain


def test_the_others_wait_within_3_iterations_and_are_back_within_2(job: Job) -> None:
    """Nobody waits before somebody is slow, and the straggler runs at full speed throughout."""
    objective = job.index.objective
    assert set(job.played_by(STRAGGLER)) == {job.index.fastest}
    for replica in job.waiting:
        played = job.played_by(replica)
        assert set(played[:SLOW_FROM]) == {objective}
        first = next(index for index in range(SLOW_FROM, SLOW_TO) if played[index] != objective)
        assert 0 < first - (SLOW_FROM + 1) <= 3
        assert objective not in played[first:SLOW_TO]
        back = next(index for index in range(SLOW_TO, ITERATIONS) if played[index] == objective)
        assert back - SLOW_TO <= 2
        assert set(played[back:]) == {objective}


def test_the_job_is_as_fast_as_its_straggler(job: Job) -> None:
    """The slow iterations: the job's own duration against the straggler's at the same iterations."""
    straggler_s = fmean(job.book.own_s[index][STRAGGLER] for index in range(SLOW_FROM, SLOW_TO))
    assert job.lasts_s(SLOW_FROM, SLOW_TO) <= 1.005 * straggler_s


def test_the_waiting_replica_is_within_1_percent_of_the_best_frontier_point(job: Job) -> None:
    """As planned, and truly: the best plan's energy for the true T' against what the GPUs took."""
    true_s = SLOWDOWN * job.index.fastest_s
    cost_j = job.plans.effective_energy_j + job.plans.blocking_total_w * true_s
    best_j = cost_j[job.index.expected_s <= true_s].min()
    for replica in job.waiting:
        chosen = job.played_by(replica)[SLOW_TO - 1]
        assert job.index.predicted_s(np.array([chosen]))[0] <= true_s
        assert np.interp(chosen, np.arange(len(cost_j)), cost_j) <= 1.01 * best_j
        default_j = job.energy_j(replica, SLOW_FROM, SLOW_FROM + 3)
        assert job.energy_j(replica, SLOW_FROM + 4, SLOW_TO) < 0.9 * default_j


def test_it_is_said_once_when_it_comes_and_once_when_it_goes_and_booked_apart(job: Job) -> None:
    beside = job.book.modes[SLOW_FROM + 4 : SLOW_TO]
    assert set(beside) <= {Mode.PERSEUS_BESIDE, Mode.NEITHER}
    assert beside.count(Mode.PERSEUS_BESIDE) > len(beside) // 2
    assert set(job.book.modes[SLOW_TO + 4 :]) == {Mode.PERSEUS}
    said = [line for line in lines(job.said[0]) if "replica 1" in line]
    assert ["straggler" in line for line in said] == [True, False]
    assert [lines(other) for other in job.said[1:]] == [[]] * (len(job.said) - 1)
    assert events(job.run_dir, "straggler")[0]["waiting"] == job.waiting
    assert names(job.run_dir).count("straggler_gone") == 1


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
    book = run_ranks(4, straggle, content, STAGES, {STRAGGLER: [(8, 99, 1.6)]}, 18)[0].value
    own_s = np.array(book.own_s)
    ratio = (own_s[8:11, STRAGGLER] / own_s[8:11, 0]).mean()  # not answered yet
    assert ratio > 1.1  # 1.6 on an idle host
    assert max(plan[0] for plan in book.plans[8:]) > book.plans[0][0]


# A job with a GPU that is held down is no slower than at default clocks, and that GPU is named.
# The whole campaign is ``scripts/bench/straggler/slow_gpus.py``.

QUICK = Case("ZeRO-1 dp 2", "clock", "always")
CASES = [Case(*one) for one in product(("ZeRO-1 dp 2", "pipeline 2 x dp 2"), CAPS, SPELLS)]
CASES.append(Case("light last stage 2 x dp 2", "clock", "always"))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == QUICK else pytest.mark.slow) for case in CASES], ids=str
)
def test_a_job_with_a_slow_gpu_is_no_slower_than_at_default_clocks(tmp_path: Path, case: Case) -> None:
    found = compare(case, tmp_path)
    assert found.is_met(case), found


# A power cap that comes, goes and meets a straggler.

FIRST, LOWER, LIFTED, STRAGGLES, CAPPED_SLOW, END = 10, 18, 26, 34, 40, 49
PATIENCE_S = 1.0  # the watch over notices looks twice a second


@dataclass(frozen=True)
class CappedJob(Job):
    caps_w: tuple[float, float]
    """The two caps of a pipeline."""


def run_capped(rank: int, content: dict[str, Any], caps_w: tuple[float, float]) -> Book:
    """Rank 0 sets the caps; it looks after its own notices within the iteration that follows."""
    run_dir = content["perseus"]["run_dir"]
    caps = {FIRST: caps_w[0], LOWER: caps_w[1], LIFTED: None, STRAGGLES: caps_w[0]}

    def act(engine: PipelineEngine, iteration: int) -> None:
        if rank == 0 and iteration in caps:
            cap_w = caps.pop(iteration)
            if cap_w is None:
                perseus_ds.notify(run_dir, clear=True)
            else:
                perseus_ds.notify(run_dir, power_w=2 * cap_w)
            time.sleep(PATIENCE_S)

    return straggle(rank, content, STAGES, {STRAGGLER: [(CAPPED_SLOW, END, SLOWDOWN)]}, END, act=act)


@pytest.fixture(scope="module")
def capped(planned: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> CappedJob:
    """Two replicas, with caps between what the objective's plan takes and the least."""
    run_dir = tmp_path_factory.mktemp("capped") / "run"
    content = copied(planned, run_dir, audit={"every_iterations": 8, "iterations": 2, "settle_s": 0.0})
    plans = read_plans(run_dir / "plan.json")
    power_w = FrontierIndex.of(plans, Objective()).power_w
    free_w, least_w = float(power_w[select(plans, Objective()).index]), float(power_w.min())
    caps_w = free_w - 0.3 * (free_w - least_w), free_w - 0.6 * (free_w - least_w)
    return CappedJob(2, run_dir, content, run_ranks(4, run_capped, content, caps_w), plans, caps_w)


def test_all_ranks_move_at_the_same_iteration_and_within_two(capped: CappedJob) -> None:
    for other in capped.said[1:]:
        assert other.value.plans == capped.book.plans
    played, free = capped.played_by(0), capped.index.objective
    assert set(played[: FIRST + 1]) == {free}
    (held,) = set(played[FIRST + 2 : LOWER])
    assert held != free


def test_power_stays_below_the_cap_and_costs_no_more_time_than_the_frontier(capped: CappedJob) -> None:
    index = capped.index
    for cap_w, start, end in zip(capped.caps_w, (FIRST + 3, LOWER + 3), (LOWER, LIFTED), strict=True):
        lasts_s = capped.lasts_s(start, end)
        for replica in range(2):
            assert capped.energy_j(replica, start, end) / lasts_s <= 1.01 * cap_w
        assert lasts_s <= 1.003 * float(index.expected_s[index.below(cap_w).objective])


def test_nothing_is_audited_under_a_power_cap(capped: CappedJob) -> None:
    """Default clocks would break it."""
    under = [*capped.book.modes[FIRST + 3 : LIFTED], *capped.book.modes[STRAGGLES + 3 :]]
    assert set(under) == {Mode.NEITHER}
    assert Mode.BASELINE in capped.book.modes[:FIRST]


def test_only_the_true_straggler_is_named_and_the_slower_of_both_runs(capped: CappedJob) -> None:
    (told,) = [line for line in lines(capped.said[0]) if "straggler: " in line]
    assert "replica 1" in told
    assert not any("slower than promised" in line for line in lines(capped.said[0]))
    beside = capped.book.plans[CAPPED_SLOW + 4 : END]
    held = capped.played_by(0)[STRAGGLES + 2]
    assert {row[1] for row in beside} == {held}
    for row in beside:
        held_s, waits_s = capped.index.predicted_s(np.array([held, row[0]]))
        assert held_s < waits_s <= SLOWDOWN * held_s


def test_what_a_cap_costs_is_in_the_journal_and_all_ranks_in_the_run_directory(capped: CappedJob) -> None:
    found = events(capped.run_dir, "power_cap")
    caps_w = [None if one["power_w"] is None else one["power_w"] / 2 for one in found]
    assert caps_w == [pytest.approx(one) for one in (*capped.caps_w, None, capped.caps_w[0])]
    held = capped.played_by(0)[LOWER - 1]
    slower_pct = 100.0 * (capped.index.expected_s[int(held)] / capped.index.objective_s - 1.0)
    assert (found[0]["plan"], found[0]["slowdown_pct"]) == (held, pytest.approx(slower_pct))
    assert found[0]["plan_w"] <= found[0]["power_w"]
    places = read_places(RunDirectory(capped.run_dir).places)
    assert [(place.pipeline, place.pipeline_rank) for place in places] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert len({place.gpu for place in places}) == 2 * STAGES


# A rank that freezes or falls silent in our group while a straggler is answered: training goes on.

SILENT_RANK, SILENT_AT = 3, 8


def troubled(rank: int, content: dict[str, Any], leaves: bool) -> Book:  # noqa: FBT001
    """Lose one rank: we leave its session without a word, or it stands still for some seconds."""

    def act(engine: PipelineEngine, iteration: int) -> None:
        session = session_of(engine)
        if rank != SILENT_RANK or iteration != SILENT_AT or session is None:
            return
        if leaves:
            session.leave()
        else:
            subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)

    return straggle(rank, content, STAGES, {STRAGGLER: [(3, 99, SLOWDOWN)]}, 20, act=act)


@pytest.mark.slow
@pytest.mark.parametrize("leaves", [True, False], ids=["falls silent", "stands still"])
def test_a_silent_rank_ends_answers_at_most(planned: dict[str, Any], tmp_path: Path, *, leaves: bool) -> None:
    """Training alone waits for a rank that stands still for a while: nothing ends."""
    content = copied(planned, tmp_path / "run")
    said = run_ranks(4, troubled, content, leaves)
    books = [one.value for one in said]
    first, last = books[0].plans[0], books[0].plans[-1]
    assert [book.losses for book in books] == losses_without_us(content, STAGES, 4, len(books[0].losses))
    assert [book.attached for book in books] == [not leaves or rank != SILENT_RANK for rank in range(4)]
    assert books[0].plans[SILENT_AT] != first, "the straggler is answered before"
    assert len([line for line in lines(said[0]) if "runs on" in line]) == leaves
    assert names(tmp_path / "run").count("alone") == leaves
    if leaves:
        assert last == first[:1], "the objective's plan, whatever the others do"
    else:
        assert last != first, "the straggler is still answered"
