"""Coupled sets in megatron-core: experts spread over replicas, one set slower, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import lines
from ranks import Said, run_ranks
from replicas import Book, slowness

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape

import perseus_ds
from perseus_ds.config import Objective
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.plan import read_plans
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TWO_SETS = Shape(2, microbatches=4, data=4, experts=2)
SLOW_RANK, SLOWDOWN = 3, 1.2
SLOW_FROM, SLOW_TO, ITERATIONS = 8, 24, 32


def block(run_dir: Path, **audit: int) -> dict[str, Any]:
    return {
        "run_dir": str(run_dir),
        "device": "simulated",
        "profile": {"min_window_s": 8.0, "max_clocks": 5, "warmup_iterations": 2},
        "audit": {"every_iterations": 0} | audit,
        "simulated": {"forward_s": [0.4, 0.5]},
    }


def straggle(rank: int, run_dir: Path) -> Book:
    job = Job(TWO_SETS)
    perseus_ds.attach(job.schedules, config=block(run_dir))
    job.run_pass = job.schedules.get_forward_backward_func()
    book = Book()
    while len(book.plans) < ITERATIONS:
        for gpu in opened_gpus():
            spells = [(SLOW_FROM, SLOW_TO, SLOWDOWN)] if rank == SLOW_RANK else []
            gpu.slowness = slowness(spells, len(book.plans))
        active_plan = book.begin(job.schedules)
        book.losses += job.step()
        book.end(active_plan)
    return book


@pytest.fixture(scope="module")
def straggled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("sets") / "run"
    return run_dir, run_ranks(TWO_SETS.ranks, straggle, run_dir)


def test_one_slow_gpu_slows_its_set_and_the_other_set_waits(straggled: tuple[Path, list[Said]]) -> None:
    run_dir, said = straggled
    book = said[0].value
    assert all(one.value.plans == book.plans for one in said)
    assert {len(row) for row in book.plans} == {2}, "two sets of two replicas"
    objective = FrontierIndex.of(read_plans(run_dir / "plan.json"), Objective()).objective
    slow = [row[1] for row in book.plans]
    waiting = [row[0] for row in book.plans]
    assert set(waiting[:SLOW_FROM]) == {objective}
    first = next(n for n in range(SLOW_FROM, SLOW_TO) if waiting[n] != objective)
    assert first - (SLOW_FROM + 1) <= 3
    assert objective not in waiting[first:SLOW_TO]
    assert set(waiting[SLOW_TO + 2 :]) == {objective}
    assert set(slow) == {objective}, "nobody of the slow set waits"
    names = [line for line in lines(said[0]) if "straggler: set 1 (replicas 2, 3)" in line]
    assert len(names) == 1
