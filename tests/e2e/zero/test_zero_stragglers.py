"""Replicas without a pipeline, one 1.2 times slower for a while: the others wait for it at lower clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pytest
from deepspeed_hosts import ZeroHost, zero_engine
from jobs import events
from ranks import run_ranks
from replicas import Book, perseus_block, slowness, write_plan

from perseus_ds.config import Objective
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.plan import read_plans
from perseus_ds.schedule import Instruction, Schedule
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SLOWDOWN = 1.2
SLOW_FROM, SLOW_TO, ITERATIONS = 20, 60, 80
STRAGGLER, WAITING = 1, 0
ORDER = "0F0 0B0 0F1 0B1 0F2 0B2 0AR0 0OS0"


@dataclass(frozen=True)
class Job:
    book: Book
    index: FrontierIndex
    losses: list[list[str]]
    plain: list[list[str]]


def look_once(rank: int, perseus: Mapping[str, Any]) -> None:
    host = ZeroHost(zero_engine(1, perseus=perseus))
    for _ in range(2):
        host.train()


def straggle(rank: int, perseus: Mapping[str, Any] | None, iterations: int) -> Book:
    book, host = Book(), ZeroHost(zero_engine(1, perseus=perseus))
    mine = [(SLOW_FROM, SLOW_TO, SLOWDOWN)] if rank == STRAGGLER else []
    while len(book.plans) < iterations if perseus is not None else len(book.losses) < iterations:
        for gpu in opened_gpus():
            gpu.slowness = slowness(mine, len(book.plans))
        active_plan = book.begin(host.engine)
        book.losses.extend(host.train())
        book.end(active_plan)
    return book


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("zero")
    perseus = perseus_block(folder / "run", (0.4,))
    run_ranks(2, look_once, perseus | {"mode": "observe", "run_dir": str(folder / "seen")})
    fingerprint = events(folder / "seen")[0]["fingerprint"]
    order = tuple(Instruction.parse(text) for text in ORDER.split())
    write_plan(folder / "run" / "plan.json", Schedule("zero-1", 3, (order,)), (0.4,), fingerprint)
    said = run_ranks(2, straggle, perseus, ITERATIONS)
    plain = run_ranks(2, straggle, None, 12)
    index = FrontierIndex.of(read_plans(folder / "run" / "plan.json"), Objective())
    return Job(
        said[0].value,
        index,
        [one.value.losses for one in said],
        [one.value.losses for one in plain],
    )


def run_by(job: Job, replica: int) -> list[int]:
    return [row[replica] for row in job.book.plans]


def test_it_is_answered_and_over_in_time(job: Job) -> None:
    plans, objective = run_by(job, WAITING), job.index.objective
    assert set(plans[:SLOW_FROM]) == {objective}
    first = next(n for n in range(SLOW_FROM, SLOW_TO) if plans[n] != objective)
    assert 0 < first - (SLOW_FROM + 1) <= 3
    back = next(n for n in range(SLOW_TO, ITERATIONS) if plans[n] == objective)
    assert back - SLOW_TO <= 2
    assert set(plans[back:]) == {objective}
    assert set(run_by(job, STRAGGLER)) == {job.index.fastest}


def test_the_job_is_as_fast_as_its_straggler_for_less_energy(job: Job) -> None:
    slow = range(SLOW_FROM, SLOW_TO)
    straggler_s = fmean(job.book.own_s[n][STRAGGLER] for n in slow)
    job_s = (job.book.end_s[SLOW_TO - 1] - job.book.end_s[SLOW_FROM - 1]) / len(slow)
    assert job_s / straggler_s - 1.0 <= 0.005
    unanswered_j = fmean(job.book.energy_j[SLOW_FROM : SLOW_FROM + 3])
    answered_j = fmean(job.book.energy_j[SLOW_FROM + 4 : SLOW_TO])
    assert answered_j < 0.9 * unanswered_j


def test_losses_are_as_without_us(job: Job) -> None:
    for ours, theirs in zip(job.losses, job.plain, strict=True):
        assert ours[: len(theirs)] == theirs
