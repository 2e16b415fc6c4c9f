"""A correction follows the device's own moments, and none is made that would come too late."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from runtime_fakes import HandMoment, NotingGpu

from perseus_ds.plan.feedback.policy import ClockTable
from perseus_ds.runtime.control.clock_requests import Ask, ClockRequests, Corrected
from perseus_ds.runtime.control.clock_sequencer import ClockSchedule, ClockSequencer
from perseus_ds.runtime.control.feedback import FeedbackSchedule, Following
from perseus_ds.schedule import Kind

LATENCY_S = 0.02
OWN_MHZ, SLOW_MHZ, AHEAD_MHZ, FAST_MHZ = 850, 800, 900, 1000


def table(begin_s: float) -> ClockTable:
    """Slower where it is 0.1 s early, faster where it is 0.1 s late; half of the lateness before counts.

    The faster clock is asked for at once where it is 0.2 s late, and twice what is missing to that later.
    """
    return ClockTable(
        begin_s,
        (1.0, 0.5),
        above_s=(-0.1, 0.1),
        first_mhz=(SLOW_MHZ, AHEAD_MHZ, AHEAD_MHZ),
        then_mhz=(SLOW_MHZ, AHEAD_MHZ, FAST_MHZ),
        at_once_s=(-0.1, 0.0, 0.2),
        delay=(0.0, 0.0, -2.0),
        ahead_mhz=AHEAD_MHZ,
        own_mhz=OWN_MHZ,
        lasts_s=1.0,
        most_late_s=0.5,
        share=0.9,
        sooner_s=-0.3,
        later_s=0.3,
    )


@pytest.fixture
def following() -> Following:
    found = Following([table(0.0), table(1.0), table(2.0)], LATENCY_S)
    found.begins(10.0, 10.0)
    return found


def only(clock_mhz: int) -> Corrected:
    return Corrected((Ask(clock_mhz),))


@pytest.mark.parametrize(
    ("late_s", "clock_mhz", "later_s"),
    [(0.0, AHEAD_MHZ, 0.0), (0.25, FAST_MHZ, -0.225), (-0.2, SLOW_MHZ, 0.18), (0.5, FAST_MHZ, -0.3)],
)
def test_lateness_since_the_iteration_began_says_the_clock_and_the_end(
    following: Following, late_s: float, clock_mhz: int, later_s: float
) -> None:
    at_s = 11.0 + late_s
    following.corrects(0, 10.0, 10.0)
    found = following.corrects(1, at_s, at_s)
    assert found.asks == (Ask(clock_mhz),)
    assert found.later_s == pytest.approx(later_s)


def test_one_that_is_a_little_late_changes_on_the_way(following: Following) -> None:
    """It begins at the clock asked for ahead, whether or not that was asked for by now."""
    following.corrects(0, 10.0, 10.0)
    (ahead, changes), later_s = following.corrects(1, 11.15, 11.15)
    assert ahead == Ask(AHEAD_MHZ)
    assert (changes.clock_mhz, changes.delay_s) == (FAST_MHZ, pytest.approx(0.1))
    assert later_s == pytest.approx(-0.135)


def test_one_later_than_any_variation_keeps_the_plans_own_clock(following: Following) -> None:
    following.corrects(0, 10.0, 10.0)
    assert following.corrects(1, 11.6, 11.6) == only(OWN_MHZ)


def test_the_lateness_before_counts_too(following: Following) -> None:
    following.corrects(0, 10.4, 10.4)
    assert following.corrects(1, 11.0, 11.0).asks == (Ask(FAST_MHZ),)


@pytest.mark.parametrize("at_s", [math.inf, math.nan, 9.0])
def test_a_moment_that_is_lost_or_jumps_back_leaves_the_plans_own_clock(
    following: Following, at_s: float
) -> None:
    assert following.corrects(0, at_s, 10.0) == only(OWN_MHZ)
    assert following.corrects(1, 11.0, 11.0) == only(OWN_MHZ)


def test_who_changes_to_it_within_an_iteration_keeps_the_plans_own_clocks(following: Following) -> None:
    following.forget(10.5, 10.5)
    assert following.corrects(1, 11.0, 11.0) == only(OWN_MHZ)


def test_a_correction_that_would_come_when_the_computation_is_over_is_not_made(following: Following) -> None:
    assert following.corrects(0, 10.0, 10.97).asks == (Ask(AHEAD_MHZ),)
    assert following.corrects(1, 11.0, 11.99).asks == ()
    assert following.corrects(2, 12.15, 12.15 + 0.9).asks == (), "it ends sooner"


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
    moments = [HandMoment(at_s) for at_s in (0.0, 0.0, 1.25)]
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
    gpu.time_s = 1.25
    moments[2].reach()
    assert gpu.wait_for(1) == [AHEAD_MHZ, FAST_MHZ]
    assert requests.error is None
    assert (requests.counts.corrected, requests.counts.overtaken) == (1, 0), "the first began in time"


def test_what_is_asked_for_ahead_of_an_end_waits_for_an_end_that_is_later(
    gpu: NotingGpu, requests: ClockRequests
) -> None:
    """The computation begins 0.2 s early and ends 0.18 s later than on average, counted from there."""
    moments = [HandMoment(at_s) for at_s in (0.0, 0.0, 0.8)]
    waiting = iter(moments)
    sequencer = ClockSequencer(requests, gpu.now_s, moment=lambda: next(waiting))
    ahead = ClockSchedule((Ask(AHEAD_MHZ),), ((), (Ask(OWN_MHZ, 0.5),)), ((), ()))
    sequencer.begin(FeedbackSchedule(ahead, Following([table(0.0), table(1.0)], LATENCY_S)))
    for moment, at_s in zip(moments, (0.0, 0.0, 0.8), strict=True):
        if moment is not moments[0]:
            sequencer.before(Kind.FORWARD)
            sequencer.after(Kind.FORWARD)
        gpu.time_s = at_s
        moment.reach()
    gpu.wait_for(2)
    assert requests.asked.steady_mhz(0.8, 1.47) == SLOW_MHZ
    assert requests.asked.latest_mhz == OWN_MHZ
