"""Requests in order, the last one wins, what changes nothing is skipped."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason
from perseus_ds.errors import DeviceError, DevicePermissionError
from perseus_ds.guard.writer import ClockWriter


@dataclass
class Time:
    now_s: float = 0.0


@dataclass
class Device:
    """A GPU whose calls take time and may fail, behind a claim that found it free."""

    time: Time
    calls_s: list[float] = field(default_factory=list)
    written: list[int | None] = field(default_factory=list)
    fails: bool = False
    error: DeviceError = field(default_factory=lambda: DeviceError("busy"))
    reaches: bool = True
    stuck_mhz: int | None = None

    @property
    def gpu(self) -> "Device":
        return self

    def lock_clock(self, clock_mhz: int | None) -> None:
        self.time.now_s += self.calls_s.pop() if self.calls_s else 0.0
        if self.fails:
            raise self.error
        self.written.append(clock_mhz)

    def restore(self) -> None:
        self.lock_clock(None)

    def capabilities(self) -> Capabilities:
        return Capabilities((1410, 900, 705), (), True, None, 0.1, 0.0)

    def achieved(self) -> Achieved:
        clock_mhz = self.stuck_mhz or (self.reaches and self.written[-1]) or 1410
        return Achieved(clock_mhz, 1593, EventReason.NONE)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def device(time: Time) -> Device:
    return Device(time)


@pytest.fixture
def writer(device: Device, time: Time) -> ClockWriter:
    return ClockWriter(device, now_s=lambda: time.now_s)


def test_of_requests_that_wait_only_the_last_is_written(writer: ClockWriter, device: Device) -> None:
    for number, clock_mhz in enumerate((900, 1200, 705), start=1):
        writer.request(number, clock_mhz)
    assert writer.step().clock_mhz == 705
    assert writer.step() is None
    assert device.written == [705]


def test_a_stale_request_is_dropped(writer: ClockWriter, device: Device) -> None:
    writer.request(2, 900)
    writer.request(1, 1200)
    writer.step()
    assert device.written == [900]


def test_a_request_that_changes_nothing_is_skipped(writer: ClockWriter, device: Device) -> None:
    for number in (1, 2, 3):
        writer.request(number, 900)
        writer.step()
    assert device.written == [900]


def test_a_refused_request_is_not_taken_as_written(writer: ClockWriter, device: Device) -> None:
    device.fails, device.error = True, DevicePermissionError("no right")
    writer.request(1, 900)
    with pytest.raises(DeviceError):
        writer.step()
    device.fails = False
    writer.request(2, 900)
    writer.step()
    assert device.written == [900]


def test_what_is_refused_for_a_moment_is_tried_again_with_longer_and_longer_waits(
    writer: ClockWriter, device: Device, time: Time
) -> None:
    device.fails = True
    writer.request(1, 900)
    waits_s = []
    for _ in range(6):
        assert writer.step() is None
        assert writer.step() is None, "not before it is due"
        waits_s.append(writer.due_s() - time.now_s)
        time.now_s = writer.due_s()
    assert waits_s == sorted(waits_s)
    assert waits_s[0] < 0.01
    writer.request(2, 705)  # what is newer counts, and the wait goes on
    device.fails = False
    assert writer.step().clock_mhz == 705
    assert device.written == [705]
    assert not writer.pending


def test_a_driver_that_refuses_for_long_is_said(writer: ClockWriter, device: Device, time: Time) -> None:
    device.fails = True
    writer.request(1, 900)
    for _ in range(20):
        writer.step()
        time.now_s += 0.1
    time.now_s += 0.1
    with pytest.raises(DeviceError, match="busy"):
        writer.step()
    assert not writer.pending


def test_after_a_refusal_nothing_is_skipped_as_done(writer: ClockWriter, device: Device, time: Time) -> None:
    """A driver's error says nothing of what stands in it: a reset after a failed one is asked for."""
    writer.request(1, 705)
    writer.step()
    device.fails, device.error = True, DevicePermissionError("no")
    writer.request(2, 900)
    with pytest.raises(DeviceError):
        writer.step()
    device.fails = False
    for number in (3, 4):
        writer.request(number, 705)
        writer.step()
    assert device.written == [705, 705]


def test_giving_back_is_tried_until_it_is_done(writer: ClockWriter, device: Device, time: Time) -> None:
    writer.request(1, 705)
    writer.step()
    device.fails = True
    writer.release()
    for _ in range(1000):
        writer.step()
        time.now_s += 0.1
    device.fails = False
    time.now_s += 1
    writer.step()
    assert device.written == [705, None]


def test_a_clock_that_was_given_back_and_stands_is_given_back_again(
    writer: ClockWriter, device: Device, time: Time
) -> None:
    writer.request(1, 705)
    writer.step()
    device.stuck_mhz = 705
    writer.request(2, None)
    writer.step()
    time.now_s = writer.due_s()
    assert writer.observe() is None
    device.stuck_mhz = None
    writer.step()
    assert device.written == [705, None, None]
    time.now_s = writer.due_s()
    assert writer.observe() is None
    assert writer.due_s() is None, "it is seen to be free"


def test_call_and_settle_are_recorded(writer: ClockWriter, device: Device, time: Time) -> None:
    device.calls_s = [0.010]
    writer.request(1, 900)
    writer.step()
    time.now_s = writer.next_observation_s()
    assert writer.observe().locked_mhz == 900
    assert writer.figures().call_s == pytest.approx(0.010)
    assert writer.figures().settle_s == pytest.approx(0.005)


def test_what_a_slow_call_takes_is_known_after_a_hundred_and_one_that_hung_is_none(
    writer: ClockWriter, device: Device
) -> None:
    for number in range(1, 121):
        device.calls_s = [30.0 if number == 60 else 0.012 if number % 10 == 0 else 0.003]
        writer.request(number, (900, 1200)[number % 2])
        writer.step()
        assert number >= 100 or writer.slow_call_s == 0.0
    assert writer.slow_call_s == pytest.approx(0.012)


def test_the_clock_is_read_back_at_a_bounded_rate(writer: ClockWriter, time: Time) -> None:
    writer.request(1, 900)
    writer.step()
    looks = 0
    for _ in range(1000):
        time.now_s += 0.001
        looks += writer.observe() is not None
    assert 3 <= looks <= 5


def test_a_clock_that_changes_all_the_time_is_read_back_too(
    writer: ClockWriter, device: Device, time: Time
) -> None:
    device.reaches = False
    looks = []
    for number in range(1, 1001):
        writer.request(number, 900 if number % 2 else 705)
        writer.step()
        for _ in range(6):
            time.now_s += 0.001
            looks.append(writer.observe())
    told = [look for look in looks if look is not None]
    assert 20 <= len(told) <= 26  # 6 s, four times a second
    assert not any(look.settled for look in told)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from((None, 705, 900, 1410))), min_size=1))
def test_whatever_is_asked_the_final_state_is_the_last_request(events: list[tuple[bool, int | None]]) -> None:
    device = Device(Time())
    writer = ClockWriter(device, now_s=lambda: 0.0)
    for number, (steps, clock_mhz) in enumerate(events, start=1):
        writer.request(number, clock_mhz)
        if steps:
            writer.step()
    writer.step()
    final = device.written[-1] if device.written else None
    assert final == events[-1][1]
    assert all(
        first != second for first, second in zip([None, *device.written], device.written, strict=False)
    )


def test_a_hundred_thousand_requests_with_latency_lose_nothing() -> None:
    draw, time = random.Random(7), Time()
    device = Device(time)
    writer = ClockWriter(device, now_s=lambda: time.now_s)
    asked: list[int] = []
    for number in range(1, 100_001):
        asked.append(draw.randrange(210, 1411, 15))
        writer.request(number, asked[-1])
        if draw.random() < 0.3:
            device.calls_s = [draw.random() * 0.02]
            writer.step()
            assert device.written[-1] == asked[-1]
    writer.step()
    assert device.written[-1] == asked[-1]


def test_a_clock_given_back_is_looked_at_when_it_has_had_time(
    writer: ClockWriter, device: Device, time: Time
) -> None:
    writer.request(1, 705)
    writer.step()
    time.now_s += 1.0
    writer.request(2, None)
    writer.step()
    assert writer.next_observation_s() == pytest.approx(time.now_s + 0.25)


def test_what_was_asked_and_done_is_counted(writer: ClockWriter, device: Device, time: Time) -> None:
    for number, clock_mhz in enumerate((900, 900, 705), start=1):
        writer.request(number, clock_mhz)
        writer.step()
    figures = writer.figures()
    assert (figures.asked, figures.applied, figures.retries) == (3, 2, 0)
    device.fails = True
    writer.request(4, 900)
    writer.step()
    assert writer.figures().retries == 1
