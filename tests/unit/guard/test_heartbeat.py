"""When a guard that says nothing is doubted, and when it hangs."""

import pytest

from perseus_ds.guard.client import Heartbeat


class Clock:
    def __init__(self) -> None:
        self.time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heartbeat(clock: Clock) -> Heartbeat:
    return Heartbeat(30.0, now_s=clock)


def beat(heartbeat: Heartbeat, clock: Clock) -> None:
    clock.time_s += heartbeat.left_s()
    heartbeat.sent()


def test_a_silent_guard_is_doubted_after_seconds_and_hangs_after_a_lease(
    heartbeat: Heartbeat, clock: Clock
) -> None:
    seen = {}
    while not heartbeat.hangs:
        beat(heartbeat, clock)
        seen.setdefault((heartbeat.in_doubt, heartbeat.hangs), clock.time_s - 101.0)
    assert seen == {(False, False): 0.0, (True, False): 2.0, (True, True): 30.0}
    heartbeat.answered()
    assert not heartbeat.in_doubt
    assert not heartbeat.hangs


def test_a_job_that_was_suspended_has_no_doubt(heartbeat: Heartbeat, clock: Clock) -> None:
    beat(heartbeat, clock)
    clock.time_s += 3600.0
    beat(heartbeat, clock)
    assert not heartbeat.in_doubt
    assert not heartbeat.hangs


def test_a_short_lease_is_kept_by_three_beats(clock: Clock) -> None:
    heartbeat = Heartbeat(0.3, now_s=clock)
    assert heartbeat.left_s() == pytest.approx(0.1)
    for _ in range(3):
        beat(heartbeat, clock)
    assert not heartbeat.hangs
    beat(heartbeat, clock)
    assert heartbeat.hangs
