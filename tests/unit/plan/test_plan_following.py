"""Plans of single iterations that follow loads: no slower, cheaper, and the same wherever they are made."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from load_plans import (
    BLOCKING_W,
    FREE,
    MICROBATCHES,
    STAGES,
    drawn,
    planned,
    problem,
    profile,
    usual_busy_j,
)

from perseus_ds.device import ClockChange
from perseus_ds.plan import build
from perseus_ds.plan.following import READY, AnswerFrame, LoadProblem, QuestionFrame, Setup, why_not
from perseus_ds.plan.following.kept import load_problem
from perseus_ds.plan.playing.clock_requests import clock_requests, opening_clocks
from perseus_ds.schedule import Instruction, Kind, Load, dag_of


@pytest.mark.parametrize("seed", range(4))
def test_it_takes_as_long_as_the_highest_clocks_and_less_energy(seed: int) -> None:
    one = problem()
    factor = one.factors(drawn(seed))
    followed = one.within(one.solve(factor), 0.0)
    highest_s = one.lasts_s(one.at_highest_s(factor))
    assert followed.time_s == pytest.approx(highest_s, rel=1e-5)
    before_j = planned().baseline.energy_j * highest_s / planned().baseline.iteration_time_s
    assert followed.energy_j + planned().blocking_total_w * followed.time_s < 0.95 * before_j


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stretch", [1.0, 1.1])
def test_at_the_objective_s_own_time_it_needs_less(seed: int, stretch: float) -> None:
    one = problem()
    factor = one.factors(drawn(seed))
    limit_s = stretch * one.lasts_s(one.at_objective_s(factor))
    followed = one.within(one.solve(factor), limit_s)
    assert followed.time_s <= limit_s * (1.0 + 1e-6)
    assert followed.energy_j < usual_busy_j(one, factor)


def test_equal_loads_give_the_plan_itself() -> None:
    one = problem()
    factor = one.factors([Load(1000.0)] * MICROBATCHES)
    assert factor == pytest.approx(np.ones(len(factor)))
    followed = one.within(one.solve(factor), float(planned().iteration_time_s[0]))
    assert followed.time_s == pytest.approx(float(planned().iteration_time_s[0]), rel=1e-6)
    assert followed.energy_j == pytest.approx(float(planned().effective_energy_j[0]), rel=1e-3)


def test_the_reserve_follows_what_loads_leave_open() -> None:
    kept = [
        load_problem(planned(), profile(scatter), 0, change=FREE).reserve_pct for scatter in (0.0, 0.01, 0.04)
    ]
    assert kept[0] == 0.0
    assert kept[0] < kept[1] < kept[2]


def test_frames_return_what_was_written() -> None:
    one, frame = problem(), AnswerFrame(planned(), (-1, 2, 5))
    asked = QuestionFrame(7, 1.05, on_pace=False, loads=tuple(drawn(0)))
    assert QuestionFrame.of(asked.packed()) == asked
    assert len(asked.packed()) == QuestionFrame.numbers(MICROBATCHES)
    followed = one.within(one.solve(one.factors(asked.loads)), 0.0)
    numbers = frame.packed(7, followed)
    assert len(numbers) == frame.numbers
    assert [frame.of(numbers, rank) for rank in range(STAGES)] == list(followed.clocks)
    assert frame.time_s(numbers) == followed.time_s
    left_s = frame.left_s(numbers)
    assert left_s[0] == followed.time_s
    assert left_s[2] == pytest.approx(followed.time_s - followed.ends_s[5])
    assert frame.time_s(frame.none(8)) is None


@pytest.mark.thorough
def test_the_process_answers_as_the_function_does_and_ends_with_its_input() -> None:
    setup = Setup(planned(), profile(), 0, FREE, (-1,))
    loads = [tuple(drawn(seed)) for seed in (1, 2)]
    asked = [QuestionFrame(n, stretch, True, loads[n]) for n, stretch in enumerate((1.0, 1.2))]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "perseus_ds.plan.following"],
        input=pickle.dumps(setup) + b"".join(one.packed().tobytes() for one in asked),
        capture_output=True,
        check=True,
        timeout=120,
    )
    frame, one = AnswerFrame(planned(), (-1,)), load_problem(planned(), profile(), 0, change=FREE)
    ready, *answers = np.frombuffer(done.stdout).reshape(3, frame.numbers)
    assert np.array_equal(ready, frame.none(READY))
    for question, answer in zip(asked, answers, strict=True):
        factor = one.factors(question.loads)
        limit_s = question.stretch * one.lasts_s(one.at_objective_s(factor))
        expected = frame.packed(question.number, one.within(one.solve(factor), limit_s))
        assert np.array_equal(answer, expected, equal_nan=True)


def test_what_cannot_follow_says_why() -> None:
    assert why_not(planned(), profile(), splits=True) is None
    assert "loads" in str(why_not(planned(), replace(profile(), loads={}), splits=True))
    assert "never" in str(why_not(planned(), profile(), splits=False))


def test_many_loads_at_once_are_as_one_by_one() -> None:
    loads, kind = drawn(3), Kind.BACKWARD
    for counted_at in (0, None):
        found = profile().relative_durations(1, kind, loads, counted_at=counted_at)
        fits = profile().loads
        mean = next((fit.mean for (stage, _), fit in fits.items() if stage == counted_at), None)
        one_by_one = [fits[1, kind].factor(one, mean=mean) for one in loads]
        assert found == pytest.approx(one_by_one, rel=1e-12)


@pytest.mark.parametrize("stretch", [1.0, 1.3])
def test_it_leaves_every_gpu_at_the_clock_that_the_next_iteration_begins_at(stretch: float) -> None:
    """However slowly this one ends: else the next one's first computation runs until the clock has come."""
    one = LoadProblem(planned(), profile(), 0, change=ClockChange.lasting(0.01))
    factor = one.factors(drawn(1))
    followed = one.within(one.solve(factor), stretch * one.lasts_s(one.at_objective_s(factor)))
    for rank, clocks in enumerate(followed.clocks):
        usual = clock_requests(planned().plan(0), rank, ClockChange.lasting(0.01))
        begun_at = opening_clocks(planned().plan(0), rank, usual)
        asked = [clocks.opening, *((ask.clock_mhz, ask.memory_mhz) for ask in clocks.requests)]
        assert asked[-1] == begun_at


def test_what_is_of_no_microbatch_takes_its_own_time() -> None:
    """Some loops load one batch more, or wait for one message more, than there are microbatches."""
    plain = planned().schedule
    orders = tuple(
        (*order, Instruction(stage, Kind.LOAD, MICROBATCHES)) for stage, order in enumerate(plain.orders)
    )
    plans = build(profile(), replace(plain, name="loads ahead", orders=orders), blocking_power_w=BLOCKING_W)
    factor = LoadProblem(plans, profile(), 0).by_size(np.full(MICROBATCHES, 2.0))
    kinds = [node.kind.is_computation for node in dag_of(plans.schedule).nodes]
    assert factor.tolist() == [2.0 if computed else 1.0 for computed in kinds]
