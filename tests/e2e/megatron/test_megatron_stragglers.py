"""Two pipelines of megatron-core side by side, one 1.2 times slower for a while, in virtual time."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from ranks import Said, run_ranks
from replicas import Book, slowness

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron.core import parallel_state
from megatron_jobs import Job, Shape

import perseus_ds
from perseus_ds.config import Objective
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.plan import read_plans
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHAPE = Shape(2, microbatches=4, data=2, overlap_reduce=True, distributed_optimizer=True)
STRAGGLER, SLOWDOWN = 1, 1.2
SLOW_FROM, SLOW_TO, ITERATIONS = 12, 36, 48


def block(run_dir: Path) -> dict[str, Any]:
    return {
        "run_dir": str(run_dir),
        "device": "simulated",
        "profile": {"min_window_s": 8.0, "max_clocks": 5, "warmup_iterations": 2},
        "audit": {"every_iterations": 0},
        "simulated": {"forward_s": [0.4, 0.5]},
    }


def straggle(rank: int, run_dir: Path) -> tuple[int, Book]:
    """Profile, plan, and train so many iterations at the plan."""
    job = Job(SHAPE)
    perseus_ds.attach(job.schedules, config=block(run_dir))
    job.run_pass = job.schedules.get_forward_backward_func()
    replica = parallel_state.get_data_parallel_rank()
    mine = [(SLOW_FROM, SLOW_TO, SLOWDOWN)] if replica == STRAGGLER else []
    book = Book()
    while len(book.plans) < ITERATIONS:
        for gpu in opened_gpus():
            gpu.slowness = slowness(mine, len(book.plans))
        active_plan = book.begin(job.schedules)
        book.losses += job.step()
        book.end(active_plan)
    return replica, book


@pytest.fixture(scope="module")
def straggled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("megatron") / "run"
    return run_dir, run_ranks(SHAPE.ranks, straggle, run_dir)


def test_the_other_waits_and_is_back(straggled: tuple[Path, list[Said]]) -> None:
    run_dir, said = straggled
    book = said[0].value[1]
    index = FrontierIndex.of(read_plans(run_dir / "plan.json"), Objective())
    assert all(one.value[1].plans == book.plans for one in said)
    waiting = [row[1 - STRAGGLER] for row in book.plans]
    assert set(waiting[:SLOW_FROM]) == {index.objective}
    first = next(n for n in range(SLOW_FROM, SLOW_TO) if waiting[n] != index.objective)
    assert 0 < first - (SLOW_FROM + 1) <= 3
    assert index.objective not in waiting[first:SLOW_TO]
    back = next(n for n in range(SLOW_TO, ITERATIONS) if waiting[n] == index.objective)
    assert back - SLOW_TO <= 2
    assert set(waiting[back:]) == {index.objective}


def test_waiting_costs_less(straggled: tuple[Path, list[Said]]) -> None:
    waiting = [book for replica, book in (one.value for one in straggled[1]) if replica != STRAGGLER]
    beside, alone = slice(SLOW_FROM + 6, SLOW_TO - 1), slice(4, SLOW_FROM - 1)
    spent_j = [sum(fmean(book.energy_j[part]) for book in waiting) for part in (alone, beside)]
    assert spent_j[1] < spent_j[0]
