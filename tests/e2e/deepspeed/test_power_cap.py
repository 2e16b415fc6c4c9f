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
from ranks import Said, run_ranks
from replicas import Book, planned_job, straggle

import perseus_ds
from perseus_ds.config import Objective
from perseus_ds.plan import read_plans, select
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
    """Observations of every rank, the frontier, and the two caps of a pipeline."""

    said: list[Said]
    frontier_index: FrontierIndex
    caps_w: tuple[float, float]
    run_dir: Path

    @property
    def book(self) -> Book:
        book = self.said[0].value
        assert isinstance(book, Book)
        return book

    def played(self, start: int, end: int) -> list[float]:
        return [row[0] for row in self.book.plans[start:end]]

    def lasts_s(self, start: int, end: int) -> float:
        return (self.book.end_s[end - 1] - self.book.end_s[start - 1]) / (end - start)

    def power_w(self, replica: int, start: int, end: int) -> float:
        mine = [said.value.energy_j[start:end] for said in self.said if said.rank % REPLICAS == replica]
        return float(np.sum(mine)) / (self.lasts_s(start, end) * (end - start))


def capped(rank: int, content: dict[str, Any], caps_w: tuple[float, float]) -> Book:
    """Rank 0 sets the caps; it looks after its own notices within the iteration that follows."""
    run_dir = content["perseus"]["run_dir"]
    caps = {FIRST: caps_w[0], LOWER: caps_w[1], LIFTED: None, STRAGGLES: caps_w[0]}

    def act(rank: int, iteration: int) -> None:
        if rank == 0 and iteration in caps:
            cap_w = caps.pop(iteration)
            if cap_w is None:
                perseus_ds.notify(run_dir, clear=True)
            else:
                perseus_ds.notify(run_dir, power_w=REPLICAS * cap_w)
            time.sleep(PATIENCE_S)

    return straggle(rank, content, STAGES, {1: [(SLOW_FROM, END, SLOWDOWN)]}, END, act=act)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Its caps lie between what the objective's plan takes and the least."""
    folder, ranks = tmp_path_factory.mktemp("capped"), STAGES * REPLICAS
    audit = {"audit": {"every_iterations": 8, "iterations": 2, "settle_s": 0.0}}
    content = planned_job(folder, ranks=ranks, forward_s=FORWARD_S, perseus=audit, profiled=True)
    plans = read_plans(folder / "run" / "plan.json")
    index = FrontierIndex.of(plans, Objective())
    free_w, least_w = float(index.power_w[select(plans, Objective()).index]), float(index.power_w.min())
    caps_w = free_w - 0.3 * (free_w - least_w), free_w - 0.6 * (free_w - least_w)
    return Job(run_ranks(ranks, capped, content, caps_w), index, caps_w, folder / "run")


def test_all_ranks_move_at_the_same_iteration_and_within_two(job: Job) -> None:
    for other in job.said[1:]:
        assert other.value.plans == job.book.plans
    free, held = job.frontier_index.objective, job.played(FIRST + 2, LOWER)
    assert set(job.played(0, FIRST + 1)) == {free}
    assert len(set(held)) == 1
    assert held[0] != free


def test_power_stays_below_the_cap_and_costs_no_more_time_than_the_frontier(job: Job) -> None:
    index = job.frontier_index
    for cap_w, start, end in zip(job.caps_w, (FIRST + 3, LOWER + 3), (LOWER, LIFTED), strict=True):
        frontier_s, lasts_s = float(index.expected_s[index.below(cap_w).objective]), job.lasts_s(start, end)
        power_w = [job.power_w(replica, start, end) for replica in range(REPLICAS)]
        sys.stdout.write(
            f"\ncap {cap_w:.0f} W: {np.round(power_w, 1)} W, {lasts_s:.4f} s; frontier {frontier_s:.4f} s"
        )
        assert max(power_w) <= 1.01 * cap_w
        assert lasts_s <= 1.003 * frontier_s


def test_nothing_is_audited_under_a_power_cap(job: Job) -> None:
    """Default clocks would break it."""
    under = [*job.book.modes[FIRST + 3 : LIFTED], *job.book.modes[STRAGGLES + 3 :]]
    assert set(under) == {Mode.NEITHER}
    assert Mode.BASELINE in job.book.modes[:FIRST]


def test_only_the_true_straggler_is_named_and_the_slower_of_both_runs(job: Job) -> None:
    (told,) = [line for line in lines(job.said[0]) if "straggler: " in line]
    assert "replica 1" in told
    assert not any("slower than promised" in line for line in lines(job.said[0]))
    beside = job.book.plans[SLOW_FROM + 4 : END]
    held = job.played(STRAGGLES + 2, STRAGGLES + 3)[0]
    assert {row[1] for row in beside} == {held}
    for row in beside:
        held_s, waits_s = job.frontier_index.predicted_s(np.array([held, row[0]]))
        assert held_s < waits_s <= SLOWDOWN * held_s


def test_what_it_costs_is_in_the_journal_and_where_every_rank_is_in_the_run_directory(job: Job) -> None:
    found = [event for event in events(job.run_dir) if event["event"] == "power_cap"]
    caps_w = [None if one is None else one / REPLICAS for one in (event["power_w"] for event in found)]
    assert caps_w == [pytest.approx(one) for one in (*job.caps_w, None, job.caps_w[0])]
    held = job.played(LOWER - 1, LOWER)[0]
    slower_pct = 100.0 * (job.frontier_index.expected_s[int(held)] / job.frontier_index.objective_s - 1.0)
    assert (found[0]["plan"], found[0]["slowdown_pct"]) == (held, pytest.approx(slower_pct))
    assert found[0]["plan_w"] <= found[0]["power_w"]
    places = read_places(RunDirectory(job.run_dir).places)
    assert [(place.pipeline, place.pipeline_rank) for place in places] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert len({place.gpu for place in places}) == STAGES * REPLICAS
