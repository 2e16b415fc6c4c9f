"""The control channel over real gloo groups of one rank, and the loads of an iteration, a user's own too."""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, repeat
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from adapter_contract import Noting
from lone_job import alone
from stragglers import STAGES, index, planned
from textbook_gpu import textbook_profile

import perseus_ds
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import ConfigError, EngineError, SilentRankError
from perseus_ds.profile import Profile
from perseus_ds.profile.loads import LoadFit
from perseus_ds.runtime import user_loads
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.channel import ControlChannel, IterationPacer
from perseus_ds.runtime.clocks import Ask, ClockSchedules, ClockSequencer, ClockThread
from perseus_ds.runtime.phases import ActivePlan
from perseus_ds.runtime.user_loads import LoadFunction, UserLoads, given_by_all, load_function
from perseus_ds.schedule import Kind, Load
from perseus_ds.straggler.pacing import Forecast
from perseus_ds.straggler.replica_plans import ReplicaPlans


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ControlChannel]:
    with alone(tmp_path / "store"):
        yield ControlChannel()


def test_what_rank_0_makes_is_what_comes_and_failures_are_raised_as_they_are(channel: ControlChannel) -> None:
    assert channel.broadcast_result(lambda: {"plan": 3}) == {"plan": 3}
    assert channel.gather_results(lambda: 7) == [7]
    for exchange in (channel.broadcast_result, channel.gather_results):
        with pytest.raises(ConfigError, match="key"):
            exchange(MagicMock(side_effect=ConfigError("no such key")))


# Loads that a rank reports and takes in, over a channel of one rank.

MICROBATCHES = 8
REPLICAS = 2


def profile() -> Profile:
    """Durations that follow tokens, with 1 % left unexplained."""
    plain = textbook_profile(STAGES, variation=0.3)
    fit = LoadFit(Load(1000.0), base=0.0, tokens=1.0, squares=0.0, scatter=0.01, r2=0.99, samples=100)
    return replace(plain, loads=dict.fromkeys(plain.points, fit))


def forecast() -> Forecast:
    return Forecast(planned(), index().objective, profile())


def equal(tokens: float) -> list[Load]:
    return [Load(tokens)] * MICROBATCHES


def test_a_forecast_follows_the_loads_and_its_error_is_of_what_they_leave_open() -> None:
    usual_s = forecast().of(equal(1000.0))
    assert usual_s == pytest.approx(index().objective_s, rel=1e-6)
    assert forecast().of(equal(1300.0)) == pytest.approx(1.3 * usual_s)
    assert forecast().of([*equal(1000.0)[1:], Load(3000.0)]) > 1.2 * usual_s
    assert 0.003 < forecast().error < 0.01


def pacer(channel: ControlChannel, plans: ReplicaPlans) -> IterationPacer:
    return IterationPacer(plans, channel, forecast(), replicas=REPLICAS, replica=0, waits=True, speaks=True)


class NotedPlans(ReplicaPlans):
    """Notes what is reported; the other replica reports so many times the usual time, where it is given."""

    def __init__(self, *, other: float | None = None, forecast_error: float = 0.01) -> None:
        super().__init__(index(), REPLICAS, forecast_error=forecast_error)
        self.other = other
        self.reported: list[list[float]] = []

    def pace(self, index: int, predicted_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
        self.reported.append(predicted_s.tolist())
        if self.other is not None:
            predicted_s = np.array([predicted_s[0], self.other * predicted_s[0]])
        return super().pace(index, predicted_s)


def test_an_iteration_s_loads_are_reported_and_taken_once(channel: ControlChannel) -> None:
    plans = NotedPlans()
    one = pacer(channel, plans)
    for n in range(3):
        plans.will_run(n)
        one.begins(n, equal(900.0))
        for _ in range(2 * MICROBATCHES):
            assert not one.changes()
        one.ends()
        assert plans.plans == [index().objective] * REPLICAS, "the other replica reports nothing"
    assert plans.reported == [[pytest.approx(0.9 * index().objective_s), -math.inf]] * 3


@pytest.mark.parametrize("loads", [None, [], equal(1.0)[:-1]])
def test_loads_of_another_number_are_none(channel: ControlChannel, loads: list[Load] | None) -> None:
    plans = NotedPlans()
    one = pacer(channel, plans)
    plans.will_run(0)
    one.begins(0, loads)
    one.ends()
    assert plans.reported == [[-math.inf, -math.inf]]


def test_a_paced_replica_leaves_its_low_clock_before_the_next_iteration(channel: ControlChannel) -> None:
    put: list[tuple[Ask, ...]] = []
    schedules = ClockSchedules(planned(), pipeline_rank=0, change=ClockChange(0.0, 0.02, 0.02))
    plans = NotedPlans(other=2.0, forecast_error=0.001)
    active_plan = ActivePlan(schedules, index(), replica_plans=plans, pacer=pacer(channel, plans))
    requests = MagicMock(spec=ClockThread, put=lambda asks, *_: put.append(asks))
    sequencer = ClockSequencer(requests, lambda: 0.0, moment=lambda: None)
    usual = schedules.of(index().objective).opening[0]
    sequencer.begin(active_plan.begin(0, equal(1000.0), settled=True))
    for kind in [Kind.FORWARD, Kind.BACKWARD] * MICROBATCHES:
        if (schedule := active_plan.paced_schedule()) is not None:
            sequencer.change_to(schedule)
        sequencer.before(kind)
        lowest = put[-1][-1]
        sequencer.after(kind)
    assert lowest.clock_mhz < usual.clock_mhz
    assert put[-1] == (usual,)


def test_ranks_that_are_lost_within_an_iteration_are_reported_at_its_end() -> None:
    plans, channel = NotedPlans(), MagicMock()
    channel.post.side_effect = SilentRankError("a rank fell silent")
    one = pacer(channel, plans)
    plans.will_run(0)
    one.begins(0, None)
    assert not one.changes()
    with pytest.raises(EngineError, match="silent"):
        one.ends()


# A user's function gives loads, or one line says why it is not asked again; training goes on either way.


def asked(function: LoadFunction, iterations: int = 2) -> tuple[list[Batch], list[str]]:
    """Batches of two microbatches as they reach the listener, and the lines said."""
    noting, log = Noting(), MagicMock()
    loads = UserLoads(noting, function, log=log, rank=3)
    for _ in range(iterations):
        loads.iteration_begins(Batch(2, "2 x 8"))
        loads.iteration_ends()
    loads.close()
    return [one.batch for one in noting.iterations], [call.args[0] for call in log.line_here.call_args_list]


def test_batches_have_the_loads_that_the_function_gives() -> None:
    batches, said = asked(lambda iteration, microbatches: [10 + iteration, [3, 4][:microbatches]])
    assert [one.loads for one in batches] == [(Load(10, 100), Load(7, 25)), (Load(11, 121), Load(7, 25))]
    assert [one.shape for one in batches] == ["2 x 8"] * 2
    assert said == []


def test_tensors_and_arrays_are_taken() -> None:
    """A tensor's entries are tensors without dimensions."""
    for answer in (torch.tensor([3, 4]), np.array([3, 4]), [torch.tensor([3.0]), np.array([4])]):
        batches, said = asked(lambda *_, answer=answer: answer, 1)
        assert batches[0].loads == (Load(3, 9), Load(4, 16))
        assert said == []


BAD: dict[str, tuple[Any, str]] = {
    "raises": (lambda *_: {}["no"], "raised KeyError('no')"),
    "negative": (lambda *_: [5, -1], "microbatch 1: a length is -1.0 (expected 0 or more)"),
    "negative length": (lambda *_: [5, [3, -2]], "microbatch 1: a length is -2"),
    "missing": (lambda *_: [5, None], "None for microbatch 1 (expected tokens, or a list of lengths)"),
    "infinite": (lambda *_: [float("inf"), 5], "microbatch 0: a load's tokens are inf"),
    "not finite": (lambda *_: [float("nan"), 5], "microbatch 0: a load's tokens are nan"),
    "fewer than microbatches": (lambda *_: [5], "returned 1 load for 2 microbatches"),
    "more than microbatches": (lambda *_: [5] * 3, "returned more than 2 loads for 2 microbatches"),
    "without end": (lambda *_: count(), "returned more than 2 loads for 2 microbatches"),
    "lengths without end": (lambda *_: [5, repeat(5)], "microbatch 1: more than 100000 lengths"),
    "leaves the program": (lambda *_: sys.exit(3), "raised SystemExit(3)"),
    "nothing": (lambda *_: None, "returned None, not one load"),
    "a word": (lambda *_: "many", "returned 'many', not one load"),
    "words": (lambda *_: ["many", "few"], "'many' for microbatch 0"),
}


@pytest.mark.parametrize(("function", "why"), BAD.values(), ids=BAD)
def test_a_bad_answer_ends_asking(function: LoadFunction, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_loads, "LIMIT_S", 60.0)  # other work may hold this host up
    batches, said = asked(function, 3)
    assert [one.loads for one in batches] == [None] * 3
    (line,) = said
    assert [part for part in (why, "iteration 0", "rank 3") if part not in line] == []
    assert "\n" not in line


def test_a_function_that_is_slow_again_and_again_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_loads, "LIMIT_S", 0.0)
    batches, said = asked(lambda *_: [1, 2], 5)
    assert [one.loads is None for one in batches] == [False, False, False, True, True]
    (line,) = said
    assert "longer" in line
    assert "iteration 2" in line


def test_a_function_on_some_ranks_alone_is_asked_on_none() -> None:
    channel, log = MagicMock(size=3), MagicMock()
    channel.gather_results.return_value = [True, False, True]
    assert given_by_all(channel, "math.hypot", log) is None
    assert "rank 1" in log.event.call_args.args[1]
    channel.gather_results.return_value = [True] * 3
    assert given_by_all(channel, "math.hypot", log) is math.hypot


@pytest.mark.parametrize("name", ["math.no_such", "no_such_module.loads", "loads", "math.pi"])
def test_a_name_that_leads_nowhere_is_refused_with_its_key_where_all_hear_of_it(name: str) -> None:
    """A rank that raised before the exchange would keep the others waiting."""
    with pytest.raises(ConfigError, match=f"perseus.straggler.loads .*'{name}'"):
        load_function(name)
    channel = MagicMock(size=2)
    channel.gather_results.side_effect = lambda act: [act(), True]
    with pytest.raises(ConfigError, match=r"perseus\.straggler\.loads"):
        given_by_all(channel, name, MagicMock())
    assert channel.gather_results.call_count == 1


def test_the_function_of_the_code_goes_before_the_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_function(None) is None
    assert load_function("math.hypot") is math.hypot
    try:
        perseus_ds.set_load(divmod)
        assert load_function("math.hypot") is divmod
        with pytest.raises(ConfigError, match=r"set_load .*5"):
            perseus_ds.set_load(5)
    finally:
        perseus_ds.set_load(None)
