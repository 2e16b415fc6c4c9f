"""The exchange of each iteration: the report posted, the status observed, and the longest wait."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

import numpy as np
import pytest

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.device.clock_change import AskedClocks
from perseus_ds.device.gpu import Achieved, Capabilities
from perseus_ds.errors import EngineError
from perseus_ds.profile import Interval
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.context import SwitchLatency
from perseus_ds.runtime.recorder import Arrivals, Iteration
from perseus_ds.runtime.status import JobStatus, StatusExchange, StatusLayout
from perseus_ds.schedule import Instruction, Kind

KINDS = 7


class Alone:
    """A channel of one: what was posted is what comes back."""

    def __init__(self) -> None:
        self.posted: list[np.ndarray] = []
        self.silent = False

    def post(self, numbers: np.ndarray) -> None:
        self.posted.append(numbers)

    def collect(self, *, patience_s: float | None = None) -> np.ndarray | None:
        del patience_s
        if self.silent:
            raise EngineError("a rank fell silent")
        return self.posted[-1] if self.posted else None


ORDER = (Instruction(0, Kind.BACKWARD, 0), Instruction(0, Kind.REDUCE_GRADS, 0))


def iteration(index: int) -> Iteration:
    backward, reduction = ORDER
    rows = (Interval(backward, 0.0, 8.0), Interval(reduction, 8.0, 10.0))
    return Iteration(index, 0.0, 10.0, rows)


class Rank:
    """The first stage of replica 1 of 2."""

    def __init__(self, *, behind: int = 0) -> None:
        self.channel = Alone()
        self.conflict_monitor, self.notices = MagicMock(), MagicMock()
        self.watch, asked = MagicMock(), AskedClocks()
        self.watch.looks_between.return_value = []
        asked.put(DatedClock(-1.0, 1400))
        self.conflict_monitor.report.return_value = ()
        self.notices.announced = np.array([1.3, 1.0])
        self.notices.power_w = 1850.0
        parts: dict[str, Any] = {
            "conflict_monitor": self.conflict_monitor,
            "watch": self.watch,
            "asked": asked,
            "reckoning": SwitchLatency(Capabilities((1400, 1000), (), True, None, 0.1, 0.02)),
            "notices": self.notices,
        }
        self.status_exchange = StatusExchange(
            cast("ControlChannel", self.channel),
            StatusLayout(kinds=KINDS, replicas=2, replica=1),
            arrivals=Arrivals(ORDER, pipeline_rank=0, behind=behind),
            **parts,
        )

    def turn(self, index: int, *passed: int) -> JobStatus | None:
        return self.status_exchange.turn(index, [iteration(i) for i in passed], plans_ready=0, microbatches=4)

    def own_s(self, index: int, *passed: int) -> float:
        self.turn(index, *passed)
        job_status = self.turn(index + 1)
        assert job_status is not None
        assert job_status.replicas is not None
        return float(job_status.replicas.own_s[1])


def test_the_first_turn_hears_nothing() -> None:
    assert Rank().turn(0, 0) is None


def test_an_iterations_own_time_is_heard_in_the_next_turn() -> None:
    assert Rank().own_s(0, 0) == pytest.approx(8.0)


def test_where_the_device_is_behind_all_tell_of_the_iteration_before() -> None:
    """A rank reports of the same iteration as all, even if its device has passed the last one."""
    early, late = Rank(behind=1), Rank(behind=1)
    early.turn(0, 0)
    late.turn(0)
    assert early.own_s(1, 1) == late.own_s(1, 0) == pytest.approx(8.0)


def test_an_unknown_iteration_stays_unknown() -> None:
    assert Rank().own_s(0) == np.inf


def test_caps_and_announcements_are_told() -> None:
    rank = Rank()
    rank.watch.looks_between.return_value = [(5.0, Achieved(1000, 0))]
    rank.turn(0, 0)
    job_status = rank.turn(1, 1)
    assert job_status is not None
    assert job_status.replicas is not None
    assert job_status.replicas.capped.tolist() == [False, True]
    assert job_status.replicas.announced.tolist() == [1.3, 1.0]
    assert job_status.power_w == 1850.0


def test_conflicts_reach_the_lookout() -> None:
    rank = Rank()
    rank.conflict_monitor.report.return_value = (0, 2, 0, 0, 0, 0, 0)
    rank.turn(0, 0)
    rank.turn(1, 1)
    assert rank.conflict_monitor.learn.call_args.args[0] == (0, 2, 0, 0, 0, 0, 0)


def test_silence_is_no_failure_and_a_failure_is_told() -> None:
    rank = Rank()
    assert not rank.status_exchange.someone_failed()
    rank.status_exchange.fail()
    assert rank.status_exchange.someone_failed()
    rank.channel.silent = True
    assert not rank.status_exchange.someone_failed()
    rank.status_exchange.fail()
