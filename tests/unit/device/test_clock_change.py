"""Changes of clocks: how long they take, found by calibration, capped clocks; requests and their moments."""

import math
from itertools import cycle, product

import pytest

from perseus_ds.device.clock_agenda import LATE_S, ClockAgenda, DatedClock, RequestCounts, overdue_s
from perseus_ds.device.clock_change import (
    AskedClocks,
    Calibration,
    ClockChange,
    Switch,
    calibrate,
    calibrate_together,
    is_capped,
    queue_call,
)
from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.device.simulated.gpu import SimulatedGpu, Task, VirtualTime
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import DeviceError
from perseus_ds.guard.open import NullGpu


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime(10.0)


def simulated(time: VirtualTime, **settings: float) -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(**settings), time=time)


@pytest.mark.parametrize("latency_s", [0.006, 0.037, 0.0375, 0.038, 0.0384, 0.150])
def test_the_latency_and_the_counters_period_are_found(time: VirtualTime, latency_s: float) -> None:
    """A higher clock is in force no later than said: else kernels behind a change begin at the lower one."""
    gpu = simulated(time, switch_latency_s=latency_s)
    began_s = time.now_s()
    found = calibrate(gpu)
    assert found.up_s is not None
    assert latency_s - 1e-9 <= found.up_s <= latency_s + 0.002
    assert found.down_s == pytest.approx(latency_s, abs=0.002)
    assert found.counter_period_s == pytest.approx(0.100, abs=0.003)
    assert time.now_s() - began_s < 0.4 + 8 * latency_s
    time.pass_s(1.0)
    assert gpu.achieved().clock_mhz == 1410


def test_a_power_limit_that_follows_the_load_does_not_look_like_a_slow_rise(time: VirtualTime) -> None:
    """Dense kernels are held below the highest clock, light ones reach it much later than the change."""
    gpu = simulated(time, switch_latency_s=0.004, power_cap_w=250.0, noise=0.0)
    kernels = cycle([Work(0.025, intensity=1.0), Work(0.010, memory_bound=0.9, intensity=0.1)])
    running: list[Task] = []

    def pause(pause_s: float) -> None:
        time.pass_s(pause_s)
        if not running or running[0].ended_s is not None:
            running[:] = [gpu.begin(next(kernels))]
            gpu.release(running[0])

    gpu.sleep = pause
    pause(0.001)
    assert gpu.achieved().clock_mhz < 1380
    found = calibrate(gpu)
    assert (found.up_s, found.down_s) == pytest.approx((0.004, 0.004), abs=0.002)


def test_calibration_ends_with_a_clock_not_reached_and_rare_looks_tell_nothing(time: VirtualTime) -> None:
    slow = simulated(time, switch_latency_s=30.0)
    began_s = time.now_s()
    found = calibrate(slow)
    assert (found.up_s, found.down_s, found.unreached) == (None, None, 1)
    assert time.now_s() - began_s < 0.7
    rare = simulated(time)
    rare.sleep = lambda _: time.pass_s(0.050)
    found = calibrate(rare)
    assert (found.up_s, found.down_s, found.unreached) == (None, None, 0)
    looks = (0.040, 0.009, True), (0.040, 0.011, False), (0.006, 0.002, True), (None, 0.0, False)
    for total_s, blur_s, told in looks:
        assert (Switch(510, 1410, 0.001, total_s, blur_s).latency_s is not None) is told


class NotingGpu(SimulatedGpu):
    def lock_clock(self, clock_mhz: int) -> None:
        self.__dict__.setdefault("asked_s", []).append(self.now_s())
        super().lock_clock(clock_mhz)


def test_changes_in_step_begin_at_the_same_beats_of_the_hosts_clock() -> None:
    asked_s = []
    for began_s, latency_s in ((10.0, 0.006), (10.017, 0.037)):
        time = VirtualTime(began_s)
        gpu = NotingGpu(SimulatedSettings(switch_latency_s=latency_s), time=time)
        found = calibrate(gpu, in_step=True)
        assert found.up_s == pytest.approx(latency_s, abs=0.002)
        asked_s.append([asked % 0.050 for asked in gpu.asked_s[1:]])  # the first is only where it begins
    for phase_s in (phase for phases in asked_s for phase in phases):
        assert min(phase_s, 0.050 - phase_s) < 1e-6


@pytest.mark.parametrize("idle", [0, 1])
def test_an_idle_device_is_not_held_back(time: VirtualTime, idle: int) -> None:
    """It clocks down by itself, and says so."""
    gpu = simulated(time, throttle_mhz=600)
    if idle:
        gpu.achieved = lambda: Achieved(210, EventReason.GPU_IDLE)
    found = calibrate(gpu)
    assert (found.unreached, found.idle) == (1, idle)


def test_a_device_without_clock_and_counter_has_nothing_to_measure() -> None:
    assert calibrate(NullGpu()) == Calibration(None, None, None, None, None, 0)
    assert ClockChange.of(NullGpu().capabilities()) == ClockChange()


class SlowUpwards(SimulatedGpu):
    """A device whose driver thinks for 30 ms before it goes up."""

    def lock_clock(self, clock_mhz: int) -> None:
        if clock_mhz == self.capabilities().clocks_mhz[0]:
            self.sleep(0.030)
        super().lock_clock(clock_mhz)


def test_each_direction_has_its_own_latency_and_all_at_once_wait_for_the_slowest(time: VirtualTime) -> None:
    found = calibrate(SlowUpwards(SimulatedSettings(switch_latency_s=0.010), time=time))
    assert (found.up_s, found.down_s) == pytest.approx((0.040, 0.010), abs=0.002)
    latencies_s = [0.008, 0.037, 0.015]
    gpus = [simulated(VirtualTime(10.0), switch_latency_s=one_s) for one_s in latencies_s]
    found = [one for one in calibrate_together(gpus) if isinstance(one, Calibration)]
    assert [one.together_s for one in found] == pytest.approx([0.037] * 3, abs=0.002)
    assert [one.up_s for one in found] == pytest.approx(latencies_s, abs=0.002)


# The model of a change: what it is made of, and calls that take their turns.

MEASURED = Calibration(0.010, 0.036, 0.030, together_s=0.071, counter_period_s=0.1, unreached=0)


def test_up_and_down_take_their_own_time_as_a_calibration_says() -> None:
    change = ClockChange(call_s=0.01, settle_up_s=0.02, settle_down_s=0.005)
    assert (change.latency_s(1000, 1400), change.latency_s(1400, 1000)) == pytest.approx((0.03, 0.015))
    assert change.longest_s == pytest.approx(0.03)
    change = ClockChange.of(NullGpu().capabilities(), MEASURED, gpus=8)
    assert (change.latency_s(1, 2), change.latency_s(2, 1)) == pytest.approx((0.036, 0.030))
    assert change.queue_s == pytest.approx(0.005)  # seven others, 35 ms in all


@pytest.mark.parametrize("name", ["call_s", "settle_up_s", "settle_down_s", "queue_s", "stall_s"])
def test_what_is_no_duration_is_refused(name: str) -> None:
    for value in (-1e-3, math.nan, math.inf):
        with pytest.raises(DeviceError, match=name):
            ClockChange(**{name: value})
    with pytest.raises(DeviceError, match=r"queue_s.*call_s"):
        ClockChange(call_s=0.01, queue_s=0.02)


def test_eight_calls_at_once_take_their_turns_and_nothing_overtakes() -> None:
    driver_free_s, in_force_s = -math.inf, []
    for _ in range(8):
        _, driver_free_s, one_s = queue_call(1.0, -math.inf, driver_free_s, -math.inf, 0.010, 0.036, 0.005)
        in_force_s.append(one_s)
    assert in_force_s == pytest.approx([1.036 + 0.005 * turn for turn in range(8)])
    free_s, _, up_s = queue_call(0.0, -math.inf, -math.inf, -math.inf, 0.010, 0.040, 0.0)
    free_s, _, down_s = queue_call(0.001, free_s, -math.inf, up_s, 0.010, 0.010, 0.0)
    assert (free_s, up_s) == pytest.approx((0.020, 0.040))
    assert down_s == up_s  # its own latency would have it in force at 20 ms
    assert queue_call(0.5, free_s, -math.inf, down_s, 0.010, 0.040, 0.0)[2] == pytest.approx(0.540)


# A device is held below the requested clock by its clock, and never by its reasons.

SETTLE_S = 0.1


def asked(*requests: tuple[float, int | None]) -> AskedClocks:
    history = AskedClocks()
    for due_s, clock_mhz in requests:
        history.put(DatedClock(due_s, clock_mhz))
    return history


def seen(*looks: tuple[float, int], reasons: EventReason = EventReason.NONE) -> list[tuple[float, Achieved]]:
    return [(time_s, Achieved(clock_mhz, reasons)) for time_s, clock_mhz in looks]


@pytest.mark.parametrize(
    ("looks", "requests"),
    [
        (seen((1.0, 1410), (1.3, 1400), (1.6, 1410), reasons=EventReason.SW_POWER_CAP), [(0.0, 1410)]),
        (seen((0.5, 1410), (1.05, 1410), (1.5, 900), (2.05, 900)), [(0.0, 1410), (1.0, 900), (2.0, 1410)]),
        (seen((1.0, 1200)), [(0.0, None)]),
        (seen((1.0, 1200)), []),
        ([], [(0.0, 1410)]),
    ],
    ids=["a bit at a clock that holds", "not yet settled", "its own choice", "nothing asked", "no look"],
)
def test_a_clock_that_holds_is_no_cap(
    looks: list[tuple[float, Achieved]], requests: list[tuple[float, int | None]]
) -> None:
    """A cap that bit is the normal state of a loaded H100: every straggler was once answered as capped."""
    assert not is_capped(looks, asked(*requests), settle_s=SETTLE_S)


def test_a_clock_that_is_not_reached_is_a_cap_without_any_reason() -> None:
    """Looks count for what was asked for then and had settled."""
    assert is_capped(seen((1.0, 1250), (1.3, 1245), (1.6, 1410)), asked((0.0, 1410)), settle_s=SETTLE_S)
    history = asked((0.0, 1410), (1.0, 900), (2.0, 1410))
    assert is_capped(seen((0.5, 1300), (1.5, 900), (2.5, 1300)), history, settle_s=SETTLE_S)
    history = asked((0.0, 900), (5.0, 1410), (1.0, 1200))
    assert history.steady_mhz(5.5, 6.0) == 1200


# Requests by the moment that they are due: which is made, which gives way, and what is said of the late.


def test_each_is_taken_when_it_is_due_and_of_those_overdue_the_newest() -> None:
    agenda, first, second = ClockAgenda(), DatedClock(0.1, 900), DatedClock(0.2, 1000)
    agenda.put(first)
    agenda.put(second)
    assert [agenda.take(now_s) for now_s in (0.0, 0.1, 0.15, 0.2)] == [None, first, None, second]
    assert agenda.due_s is None
    assert agenda.counts.overtaken == 0
    for due_s, clock_mhz in ((0.1, 800), (0.2, 900), (0.3, 1000), (0.4, 1100)):
        agenda.put(DatedClock(due_s, clock_mhz))
    assert agenda.take(0.35) == DatedClock(0.3, 1000)
    assert (agenda.due_s, agenda.counts.overtaken) == (0.4, 2)


def test_a_newer_request_takes_the_turn_of_those_due_later() -> None:
    agenda = ClockAgenda()
    for due_s in (0.1, 0.3, 0.4):
        agenda.put(DatedClock(due_s, 1000))
    agenda.put(DatedClock(0.2, 900))
    assert agenda.take(0.1) == DatedClock(0.1, 1000)
    assert agenda.take(9.0) == DatedClock(0.2, 900)
    assert agenda.counts.overtaken == 0, "they gave way before their moment"


def test_what_gives_way_before_its_moment_has_missed_nothing() -> None:
    """One change at one moment; rest, and a clock on its way, for a later moment than that of a newer one."""
    agenda = ClockAgenda()
    for start_s, later_s, clock_mhz in product((1.0, 2.0, 3.0), (0.0, 0.01, 0.5), (None, 900)):
        agenda.put(DatedClock(start_s + later_s, clock_mhz))
        agenda.put(DatedClock(start_s, 1000))
        assert agenda.take(start_s) == DatedClock(start_s, 1000)
        agenda.counts.record_change()
    assert (agenda.counts.overtaken, agenda.counts.missed_note()) == (0, "")


def test_a_change_in_time_is_not_late_and_overdue_after_what_host_and_driver_take_anyway() -> None:
    counts = RequestCounts()
    for _ in range(100):
        counts.record_change(late_s=0.5 * LATE_S)
    assert (counts.changes, counts.late, counts.missed_note()) == (100, 0, "")
    assert not RequestCounts(changes=100, late=1).missed_note()
    counts = RequestCounts(changes=90, late=2, overtaken=10, longest_late_s=0.031)
    assert counts.missed == 0.12
    assert all(words in counts.missed_note() for words in ("12.0 %", "31 ms"))
    assert overdue_s(0.037) == pytest.approx(0.111)
    assert overdue_s(0.0036) == 0.05, "three latencies of a quick driver are less than a busy host's wake-up"
    assert overdue_s(0.037, slow_call_s=0.4) == 0.4
