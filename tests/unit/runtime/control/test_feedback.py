"""A correction follows the device's own moments, and none is made that would come too late."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from runtime_fakes import HandMoment, NotingGpu

from perseus_ds.plan.feedback.policy import ClockTable
from perseus_ds.runtime.control.clock_requests import Ask, ClockRequests
from perseus_ds.runtime.control.clock_sequencer import ClockSchedule, ClockSequencer
from perseus_ds.runtime.control.feedback import FeedbackSchedule, Following
from perseus_ds.schedule import Kind

LATENCY_S = 0.02
OWN_MHZ, SLOW_MHZ, AHEAD_MHZ, FAST_MHZ = 850, 800, 900, 1000


def table(begin_s: float) -> ClockTable:
    """Slower where it is 0.1 s early, faster where it is 0.1 s late; half of the lateness before counts."""
    return ClockTable(
        begin_s, (1.0, 0.5), (-0.1, 0.1), (SLOW_MHZ, AHEAD_MHZ, FAST_MHZ), AHEAD_MHZ, OWN_MHZ, 1.0, 0.5
    )


@pytest.fixture
def following() -> Following:
    found = Following([table(0.0), table(1.0), table(2.0)], LATENCY_S)
    found.begins(10.0, 10.0)
    return found


@pytest.mark.parametrize(
    ("late_s", "clock_mhz"), [(0.0, AHEAD_MHZ), (0.2, FAST_MHZ), (-0.2, SLOW_MHZ), (0.6, OWN_MHZ)]
)
def test_lateness_since_the_iteration_began_says_the_clock(
    following: Following, late_s: float, clock_mhz: int
) -> None:
    at_s = 11.0 + late_s
    following.corrects(0, 10.0, 10.0)
    assert following.corrects(1, at_s, at_s) == (Ask(clock_mhz),)


def test_the_lateness_before_counts_too(following: Following) -> None:
    following.corrects(0, 10.3, 10.3)
    assert following.corrects(1, 11.0, 11.0) == (Ask(FAST_MHZ),)


@pytest.mark.parametrize("at_s", [math.inf, math.nan, 9.0])
def test_a_moment_that_is_lost_or_jumps_back_leaves_the_plans_own_clock(
    following: Following, at_s: float
) -> None:
    assert following.corrects(0, at_s, 10.0) == (Ask(OWN_MHZ),)
    assert following.corrects(1, 11.0, 11.0) == (Ask(OWN_MHZ),)


def test_who_changes_to_it_within_an_iteration_keeps_the_plans_own_clocks(following: Following) -> None:
    following.forget(10.5, 10.5)
    assert following.corrects(1, 11.0, 11.0) == (Ask(OWN_MHZ),)


def test_a_correction_that_would_come_when_the_computation_is_over_is_not_made(following: Following) -> None:
    assert following.corrects(0, 10.0, 10.97) == (Ask(AHEAD_MHZ),)
    assert following.corrects(1, 11.0, 11.99) == ()


@pytest.fixture
def gpu() -> NotingGpu:
    return NotingGpu()


@pytest.fixture
def requests(gpu: NotingGpu) -> Iterator[ClockRequests]:
    found = ClockRequests(gpu)
    yield found
    found.close()


def test_the_thread_that_sees_the_device_pass_asks_by_when_that_was(
    gpu: NotingGpu, requests: ClockRequests
) -> None:
    """The host has issued everything before the device begins; only the device's moments count."""
    moments = [HandMoment(at_s) for at_s in (0.0, 0.0, 1.2)]
    issued = iter([moments[0], moments[1], moments[2]])
    sequencer = ClockSequencer(requests, gpu.now_s, moment=lambda: next(issued))
    ahead = ClockSchedule((Ask(AHEAD_MHZ),), ((), ()), ((), ()))
    sequencer.begin(FeedbackSchedule(ahead, Following([table(0.0), table(1.0)], LATENCY_S)))
    for _ in range(2):
        sequencer.before(Kind.FORWARD)
        sequencer.after(Kind.FORWARD)
    assert gpu.asked == []
    moments[0].reach()
    assert gpu.wait_for(1) == [AHEAD_MHZ]
    moments[1].reach()
    gpu.time_s = 1.2
    moments[2].reach()
    assert gpu.wait_for(1) == [AHEAD_MHZ, FAST_MHZ]
    assert requests.error is None
    assert (requests.counts.corrected, requests.counts.overtaken) == (1, 0), "the first began in time"
