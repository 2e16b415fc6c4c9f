"""One GPU of eight that meet in every layer is 5 % slow: named, and the others run slower at no loss.

Eight processes, the whole runtime and simulated GPUs in virtual time; the training loop computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from jobs import events, lines
from lone_job import Loop, begun
from ranks import Said, run_ranks
from replicas import slowness

from perseus_ds.device.simulated import opened

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RANKS, MICROBATCHES = 8, 8
SLOW_RANK, SLOWDOWN = 5, 1.05
SLOW_FROM, SLOW_TO, ITERATIONS = 9, 27, 36


@dataclass
class Book:
    """One rank's iterations at the plan: the room it was given, its GPU's time and energy after each."""

    rooms: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    energy_j: list[float] = field(default_factory=list)


def straggle(rank: int, run_dir: Path, answers: bool) -> Book:  # noqa: FBT001
    block: dict[str, Any] = {
        "enabled": True,
        "run_dir": str(run_dir),
        "device": "simulated",
        "profile": {"min_window_s": 8.0, "max_clocks": 4, "warmup_iterations": 2},
        "audit": {"every_iterations": 0},
        "straggler": {"peers": "answer" if answers else "name"},
    }
    loop, book = Loop(MICROBATCHES), Book()
    session = begun(loop, block)
    (gpu,) = opened()
    while len(book.rooms) < ITERATIONS:
        spells = [(SLOW_FROM, SLOW_TO, SLOWDOWN)] if rank == SLOW_RANK else []
        gpu.slowness = slowness(spells, len(book.rooms))
        active_plan = session.lifecycle.active_plan
        loop.step()
        if active_plan is not None:
            book.rooms.append(active_plan.room)
            book.end_s.append(gpu.true_now().time_s)
            book.energy_j.append(gpu.true_now().energy_j)
    session.end(well=True)
    return book


Runs = dict[bool, tuple[Path, list[Said]]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The same job, its GPUs' noise the same to the last bit, answered and not."""
    found = {}
    for answers in (True, False):
        run_dir = tmp_path_factory.mktemp("peers") / "run"
        found[answers] = run_dir, run_ranks(RANKS, straggle, run_dir, answers)
    return found


def lasted_s(said: list[Said]) -> list[float]:
    """Of every iteration but the first."""
    return [end_s - start_s for start_s, end_s in pairwise(said[0].value.end_s)]


def taken_j(said: list[Said]) -> list[float]:
    """By all GPUs, of every iteration but the first."""
    return [
        sum(end_j - start_j for start_j, end_j in one)
        for one in zip(*(pairwise(rank.value.energy_j) for rank in said), strict=True)
    ]


def change(runs: Runs, row: Callable[[list[Said]], list[float]], iterations: Iterable[int]) -> float:
    """By how much the answered run differs in some iterations, relatively."""
    answered, alone = (fmean(row(runs[answers][1])[n - 1] for n in iterations) for answers in (True, False))
    return answered / alone - 1.0


def test_it_is_named_with_its_host_and_gpu_within_ten_iterations(runs: Runs) -> None:
    run_dir, said = runs[True]
    (found,) = [event for event in events(run_dir) if event["event"] == "peer_straggler"]
    assert found["peer"] == SLOW_RANK
    assert found["gpu"] == "simulated:05"
    assert found["late"] == pytest.approx(SLOWDOWN - 1.0, abs=0.01)
    named = [line for line in lines(said[0]) if f"rank {SLOW_RANK} ({found['host']}: simulated:05)" in line]
    assert len(named) == 2, "once when it appears, once when it is gone"
    slowed = next(n for n in range(ITERATIONS) if said[0].value.rooms[n] > 0.0)
    assert SLOW_FROM < slowed <= SLOW_FROM + 10


def test_by_itself_it_is_named_and_nobody_runs_slower(runs: Runs) -> None:
    run_dir, said = runs[False]
    assert [event["peer"] for event in events(run_dir) if event["event"] == "peer_straggler"] == [SLOW_RANK]
    assert any("straggler.peers" in line for line in lines(said[0]))
    assert not any(any(one.value.rooms) for one in said)


def test_its_peers_save_energy_at_no_loss(runs: Runs) -> None:
    rooms = runs[True][1][0].value.rooms
    slowed = [n for n in range(SLOW_FROM, SLOW_TO - 1) if rooms[n] > 0.0][1:]
    assert len(slowed) > 5
    assert change(runs, lasted_s, slowed) < 0.001
    assert change(runs, taken_j, slowed) < -0.04


def test_all_are_at_full_speed_again_when_it_is_over(runs: Runs) -> None:
    """Noise is drawn anew by then: 0.1 % of an iteration, where slower clocks would show 3 %."""
    said, over = runs[True][1], range(SLOW_TO + 6, ITERATIONS)
    assert {said[0].value.rooms[n] for n in over} == {0.0}
    assert set(said[SLOW_RANK].value.rooms) == {0.0}, "whom they wait for is not slowed"
    assert abs(change(runs, lasted_s, over)) < 0.005
