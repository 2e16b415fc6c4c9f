"""The control channel over real gloo groups of one rank: results, errors, and the loads of an iteration."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from lone_job import alone
from stragglers import STAGES, index, planned
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import ConfigError, EngineError, SilentRankError
from perseus_ds.plan import select
from perseus_ds.profile import LoadFit, Profile
from perseus_ds.runtime.channel import ControlChannel, IterationPacer
from perseus_ds.runtime.clocks import Ask, ClockSchedules, ClockSequencer, ClockThread
from perseus_ds.runtime.phases import ActivePlan
from perseus_ds.schedule import Kind, Load
from perseus_ds.straggler.pacing import Forecast
from perseus_ds.straggler.replica_plans import ReplicaPlans


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ControlChannel]:
    with alone(tmp_path / "store"):
        yield ControlChannel()


def refuse() -> object:
    raise ConfigError("no such key")


def test_what_rank_0_makes_is_what_comes_and_failures_are_raised_as_they_are(channel: ControlChannel) -> None:
    assert channel.broadcast_result(lambda: {"plan": 3}) == {"plan": 3}
    assert channel.gather_results(lambda: 7) == [7]
    for exchange in (channel.broadcast_result, channel.gather_results):
        with pytest.raises(ConfigError, match="key"):
            exchange(refuse)


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
    schedules = ClockSchedules(planned(), pipeline_rank=0, change=ClockChange.of_latency(0.02))
    plans = NotedPlans(other=2.0, forecast_error=0.001)
    active_plan = ActivePlan(
        schedules, select(planned(), Objective()), replica_plans=plans, pacer=pacer(channel, plans)
    )
    sequencer = ClockSequencer(
        mock.Mock(spec=ClockThread, put=lambda asks, *_: put.append(asks)), lambda: 0.0, moment=lambda: None
    )
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
    plans, channel = NotedPlans(), mock.MagicMock()
    channel.post.side_effect = SilentRankError("a rank fell silent")
    one = pacer(channel, plans)
    plans.will_run(0)
    one.begins(0, None)
    assert not one.changes()
    with pytest.raises(EngineError, match="silent"):
        one.ends()
