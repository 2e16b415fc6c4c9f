"""A power cap that comes, goes and meets a straggler: real DeepSpeed, simulated GPUs in virtual time."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import events, lines
from ranks import Said, build, config, losses, run_ranks
from replicas import Book, planned_job, straggle

import perseus_ds
from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, read_plans, select
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import read_places
from perseus_ds.runtime.accounting import Mode
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = pytest.mark.e2e

FORWARD_S = (0.4, 0.5)
STAGES, REPLICAS = len(FORWARD_S), 2
FIRST, LOWER, LIFTED, STRAGGLES, SLOW_FROM, END = 10, 18, 26, 34, 40, 49
SLOWDOWN = 1.2
PATIENCE_S = 1.0  # the watch over notices looks twice a second


@dataclass(frozen=True)
class Job:
    """What every rank saw, and the frontier."""

    said: list[Said]
    plans: PlanSet
    frontier_index: FrontierIndex
    caps_w: tuple[float, float]
    run_dir: Path

    @property
    def book(self) -> Book:
        """Rank 0's."""
        book = self.said[0].value
        assert isinstance(book, Book)
        return book

    def played(self, start: int, end: int) -> list[int]:
        return [row[0] for row in self.book.plans[start:end]]

    def lasts_s(self, start: int, end: int) -> float:
        """How long an iteration truly lasted on average."""
        return (self.book.end_s[end - 1] - self.book.end_s[start - 1]) / (end - start)

    def power_w(self, replica: int, start: int, end: int) -> float:
        """What a pipeline truly took on average."""
        mine = [said.value.energy_j[start:end] for said in self.said if said.rank % REPLICAS == replica]
        return float(np.sum(mine)) / (self.lasts_s(start, end) * (end - start))


def caps_of(plans: PlanSet) -> tuple[float, float]:
    """Two power caps between what the objective's plan takes and the least, for one pipeline."""
    power_w = FrontierIndex.of(plans, Objective()).power_w
    free_w, least_w = float(power_w[select(plans, Objective()).index]), float(power_w.min())
    return free_w - 0.3 * (free_w - least_w), free_w - 0.6 * (free_w - least_w)


def capped(rank: int, content: dict[str, Any], caps_w: tuple[float, float]) -> Book:
    """Rank 0 sets the caps; it looks after its own notices within the iteration that follows."""
    run_dir = content["perseus"]["run_dir"]
    caps = {FIRST: caps_w[0], LOWER: caps_w[1], LIFTED: None, STRAGGLES: caps_w[0]}
    done: set[int] = set()

    def act(rank: int, iteration: int) -> None:
        if rank == 0 and iteration in caps and iteration not in done:
            done.add(iteration)
            cap_w = caps[iteration]
            if cap_w is None:
                perseus_ds.notify(run_dir, clear=True)
            else:
                perseus_ds.notify(run_dir, power_w=REPLICAS * cap_w)
            time.sleep(PATIENCE_S)

    spells = {1: [(SLOW_FROM, END, SLOWDOWN)]}
    return straggle(rank, content, STAGES, spells, END, act=act)


def plainly(rank: int, iterations: int) -> list[str]:
    """The same job without a perseus block."""
    return losses(build(config(gradient_clipping=1.0), stages=STAGES), iterations)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("capped")
    audit = {"every_iterations": 8, "iterations": 2, "settle_s": 0.0}
    content = planned_job(
        folder, ranks=STAGES * REPLICAS, forward_s=FORWARD_S, perseus={"audit": audit}, profiled=True
    )
    plans = read_plans(folder / "run" / "plan.json")
    caps_w = caps_of(plans)
    said = run_ranks(STAGES * REPLICAS, capped, content, caps_w)
    return Job(said, plans, FrontierIndex.of(plans, Objective()), caps_w, folder / "run")


def tell(line: str) -> None:
    """Figures for whoever runs pytest with -s."""
    sys.stdout.write(f"\n{line}")


def test_all_ranks_move_at_the_same_iteration_and_within_two(job: Job) -> None:
    for other in job.said[1:]:
        assert other.value.plans == job.book.plans
    free, held = job.frontier_index.objective, job.played(FIRST + 2, LOWER)
    assert set(job.played(0, FIRST + 1)) == {free}
    assert len(set(held)) == 1
    assert held[0] != free


@pytest.mark.parametrize("which", [0, 1], ids=["first", "lower"])
def test_power_stays_below_the_cap_and_costs_no_more_time_than_the_frontier(job: Job, which: int) -> None:
    start, end = ((FIRST + 3, LOWER), (LOWER + 3, LIFTED))[which]
    cap_w, index = job.caps_w[which], job.frontier_index
    frontier_s = float(index.expected_s[index.below(cap_w).objective])
    lasts_s = job.lasts_s(start, end)
    for replica in range(REPLICAS):
        power_w = job.power_w(replica, start, end)
        tell(
            f"power cap {cap_w:.0f} W: replica {replica} takes {power_w:.1f} W "
            f"({100.0 * (power_w / cap_w - 1.0):+.2f} %), {lasts_s:.4f} s for the frontier's "
            f"{frontier_s:.4f} s ({100.0 * (lasts_s / frontier_s - 1.0):+.2f} %)"
        )
        assert power_w <= 1.01 * cap_w
    assert lasts_s <= 1.003 * frontier_s


def test_nothing_is_audited_under_a_power_cap(job: Job) -> None:
    """Default clocks would break it."""
    under = [*job.book.modes[FIRST + 3 : LIFTED], *job.book.modes[STRAGGLES + 3 :]]
    assert set(under) == {Mode.NEITHER}
    assert Mode.BASELINE in job.book.modes[:FIRST]


def test_only_the_true_straggler_is_named_and_the_slower_of_both_runs(job: Job) -> None:
    told = [line for line in lines(job.said[0]) if "straggler: " in line]
    assert len(told) == 1
    assert "replica 1" in told[0]
    assert not any("slower than promised" in line for line in lines(job.said[0]))
    beside = job.book.plans[SLOW_FROM + 4 : END]
    held = job.played(STRAGGLES + 2, STRAGGLES + 3)[0]
    assert {row[1] for row in beside} == {held}
    expected_s = job.frontier_index.predicted_s
    for row in beside:
        held_s, waits_s = expected_s(np.array([held, row[0]]))
        assert held_s < waits_s <= SLOWDOWN * held_s


@pytest.mark.slow
def test_losses_are_those_of_a_job_without_perseus_bit_by_bit(job: Job) -> None:
    seen = [said.value.losses for said in job.said]
    assert len(seen[0]) >= END
    plain = run_ranks(STAGES * REPLICAS, plainly, len(seen[0]))
    assert seen == [said.value for said in plain]


def test_where_every_rank_is_stands_in_the_run_directory(job: Job) -> None:
    places = read_places(RunDirectory(job.run_dir).places)
    assert [(place.pipeline, place.pipeline_rank) for place in places] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert len({place.gpu for place in places}) == STAGES * REPLICAS


def test_what_it_costs_is_in_the_journal(job: Job) -> None:
    found = [event for event in events(job.run_dir) if event["event"] == "power_cap"]
    caps_w = [None if one is None else one / REPLICAS for one in (event["power_w"] for event in found)]
    assert caps_w == [pytest.approx(one) for one in (*job.caps_w, None, job.caps_w[0])]
    held = job.played(LOWER - 1, LOWER)[0]
    slower_pct = 100.0 * (job.frontier_index.expected_s[int(held)] / job.frontier_index.objective_s - 1.0)
    assert (found[0]["plan"], found[0]["slowdown_pct"]) == (held, pytest.approx(slower_pct))
    assert found[0]["plan_w"] <= found[0]["power_w"]
