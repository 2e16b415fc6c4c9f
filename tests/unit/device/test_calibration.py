"""Calibration against devices whose truth is known."""

from itertools import cycle

import pytest

from perseus_ds.device.clock_change import (
    Calibration,
    Switch,
    calibrate,
    calibrate_together,
)
from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.device.simulated.gpu import SimulatedGpu, Task, VirtualTime
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.guard.open import NullGpu


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime(10.0)


def simulated(time: VirtualTime, **settings: float) -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(**settings), time=time)


@pytest.mark.parametrize("latency_s", [0.006, 0.037, 0.150])
def test_the_latency_and_the_counters_period_are_found(time: VirtualTime, latency_s: float) -> None:
    gpu = simulated(time, switch_latency_s=latency_s)
    began_s = time.now_s()
    found = calibrate(gpu, pause=time.pass_s)
    assert found.up_s == pytest.approx(latency_s, abs=0.002)
    assert found.down_s == pytest.approx(latency_s, abs=0.002)
    assert found.counter_period_s == pytest.approx(0.100, abs=0.003)
    assert time.now_s() - began_s < 0.4 + 8 * latency_s
    time.pass_s(1.0)
    assert gpu.achieved().clock_mhz == 1410


@pytest.mark.parametrize("latency_s", [0.006, 0.0375, 0.038, 0.0384])
def test_a_higher_clock_is_in_force_no_later_than_it_is_said_to_be(
    time: VirtualTime, latency_s: float
) -> None:
    """Half a look too early and every kernel behind a change begins at the lower clock."""
    found = calibrate(simulated(time, switch_latency_s=latency_s), pause=time.pass_s)
    assert found.up_s is not None
    assert latency_s - 1e-9 <= found.up_s <= latency_s + 0.002


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

    pause(0.001)
    assert gpu.achieved().clock_mhz < 1380
    found = calibrate(gpu, pause=pause)
    assert (found.up_s, found.down_s) == (pytest.approx(0.004, abs=0.002), pytest.approx(0.004, abs=0.002))


def test_calibration_ends_with_the_first_clock_that_is_not_reached(time: VirtualTime) -> None:
    slow = simulated(time, switch_latency_s=30.0)
    began_s = time.now_s()
    found = calibrate(slow, pause=time.pass_s)
    assert (found.up_s, found.down_s, found.unreached) == (None, None, 1)
    assert time.now_s() - began_s < 0.7


class NotingGpu(SimulatedGpu):
    def lock_clock(self, clock_mhz: int) -> None:
        self.__dict__.setdefault("asked_s", []).append(self.now_s())
        super().lock_clock(clock_mhz)


def test_changes_in_step_begin_at_the_same_beats_of_the_hosts_clock() -> None:
    asked_s = []
    for began_s, latency_s in ((10.0, 0.006), (10.017, 0.037)):
        time = VirtualTime(began_s)
        gpu = NotingGpu(SimulatedSettings(switch_latency_s=latency_s), time=time)
        found = calibrate(gpu, in_step=True, pause=time.pass_s)
        assert found.up_s == pytest.approx(latency_s, abs=0.002)
        asked_s.append([asked % 0.050 for asked in gpu.asked_s[1:]])  # the first is only where it begins
    for phase_s in (phase for phases in asked_s for phase in phases):
        assert min(phase_s, 0.050 - phase_s) < 1e-6


class IdleGpu(SimulatedGpu):
    """A GPU that clocks down by itself, and says so."""

    def achieved(self) -> Achieved:
        return Achieved(210, EventReason.GPU_IDLE)


@pytest.mark.parametrize(("kind", "idle"), [(IdleGpu, 1), (SimulatedGpu, 0)])
def test_an_idle_device_is_told_from_one_that_is_held_back(
    time: VirtualTime, kind: type[SimulatedGpu], idle: int
) -> None:
    held_back = kind(SimulatedSettings(throttle_mhz=600), time=time)
    found = calibrate(held_back, pause=time.pass_s)
    assert (found.unreached, found.idle) == (1, idle)


def test_a_host_that_looks_too_rarely_tells_nothing(time: VirtualTime) -> None:
    found = calibrate(simulated(time), pause=lambda _: time.pass_s(0.050))
    assert (found.up_s, found.down_s, found.unreached) == (None, None, 0)


@pytest.mark.parametrize(
    ("total_s", "blur_s", "told"),
    [(0.040, 0.009, True), (0.040, 0.011, False), (0.006, 0.002, True), (None, 0.0, False)],
)
def test_a_latency_is_told_by_looks_that_are_close_enough(
    total_s: float | None, blur_s: float, *, told: bool
) -> None:
    assert (Switch(510, 1410, 0.001, total_s, blur_s).latency_s is not None) is told


def test_a_device_without_clock_and_counter_has_nothing_to_measure(time: VirtualTime) -> None:
    assert calibrate(NullGpu(), pause=time.pass_s) == Calibration(None, None, None, None, None, 0)


class SlowUpwards(SimulatedGpu):
    """A device whose driver thinks for 30 ms before it goes up."""

    def lock_clock(self, clock_mhz: int) -> None:
        if clock_mhz == self.capabilities().clocks_mhz[0]:
            self.sleep(0.030)
        super().lock_clock(clock_mhz)


def test_each_direction_has_its_own_latency(time: VirtualTime) -> None:
    found = calibrate(SlowUpwards(SimulatedSettings(switch_latency_s=0.010), time=time))
    assert found.up_s == pytest.approx(0.040, abs=0.002)
    assert found.down_s == pytest.approx(0.010, abs=0.002)


def test_all_at_once_wait_as_long_as_the_slowest_of_them() -> None:
    gpus = [
        SimulatedGpu(SimulatedSettings(switch_latency_s=latency_s), time=VirtualTime(10.0))
        for latency_s in (0.008, 0.037, 0.015)
    ]
    found = [one for one in calibrate_together(gpus) if isinstance(one, Calibration)]
    assert [one.together_s for one in found] == [pytest.approx(0.037, abs=0.002)] * 3
    assert [one.up_s for one in found] == [
        pytest.approx(latency_s, abs=0.002) for latency_s in (0.008, 0.037, 0.015)
    ]
