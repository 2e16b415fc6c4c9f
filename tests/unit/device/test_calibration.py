"""Calibration against devices whose truth is known."""

import pytest

from perseus_ds.device import NullGpu, SimulatedGpu, SimulatedSettings, calibrate, calibrate_briefly, measured
from perseus_ds.device.calibration import Calibration, Switch, measure_switch
from perseus_ds.device.simulated import VirtualTime


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime(10.0)


def simulated(time: VirtualTime, **settings: float) -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(**settings), time=time)


@pytest.mark.parametrize("latency_s", [0.006, 0.037, 0.150])
def test_the_latency_is_found(time: VirtualTime, latency_s: float) -> None:
    found = calibrate(simulated(time, switch_latency_s=latency_s), pause=time.pass_s)
    assert found.up_s == pytest.approx(latency_s, abs=0.002)
    assert found.down_s == pytest.approx(latency_s, abs=0.002)
    assert found.unreached == 0


def test_the_counters_period_is_found(time: VirtualTime) -> None:
    found = calibrate(simulated(time), pause=time.pass_s)
    assert found.counter_period_s == pytest.approx(0.100, abs=0.003)


def test_the_clock_is_given_back(time: VirtualTime) -> None:
    gpu = simulated(time)
    calibrate(gpu, pause=time.pass_s)
    time.pass_s(1.0)
    assert gpu.achieved().clock_mhz == 1410


def test_switching_together_takes_as_long_as_the_slowest(time: VirtualTime) -> None:
    quick, slow = simulated(time, switch_latency_s=0.010), simulated(time, switch_latency_s=0.080)
    found = calibrate(quick, others=[slow], pause=time.pass_s)
    assert found.together_s == pytest.approx(0.080, abs=0.003)


def test_a_clock_that_is_never_reached_is_said_not_waited_for(time: VirtualTime) -> None:
    throttled = simulated(time, throttle_mhz=600)
    switch = measure_switch(throttled, 510, 1410, pause=time.pass_s)
    assert switch.total_s is None
    assert calibrate(throttled, pause=time.pass_s).unreached > 0


def test_a_device_without_clock_and_counter_has_nothing_to_measure(time: VirtualTime) -> None:
    assert calibrate(NullGpu(), pause=time.pass_s) == Calibration(None, None, None, None, None, 0)


def test_what_was_measured_takes_the_place_of_what_was_declared(time: VirtualTime) -> None:
    declared = simulated(time).capabilities()
    found = Calibration(0.004, 0.030, 0.050, None, 0.0998, 0)
    assert measured(declared, found).switch_latency_s == 0.050
    assert measured(declared, found).counter_period_s == 0.0998
    nothing = Calibration(None, None, None, None, None, 0)
    assert measured(declared, nothing) == declared


@pytest.mark.parametrize("latency_s", [0.006, 0.037, 0.150])
def test_a_brief_look_finds_the_latency_too(time: VirtualTime, latency_s: float) -> None:
    gpu = simulated(time, switch_latency_s=latency_s)
    began_s = time.now_s()
    found = calibrate_briefly(gpu, pause=time.pass_s)
    assert found.up_s == pytest.approx(latency_s, abs=0.002)
    assert found.down_s == pytest.approx(latency_s, abs=0.002)
    assert found.counter_period_s == pytest.approx(0.100, abs=0.003)
    assert time.now_s() - began_s < 0.4 + 8 * latency_s
    time.pass_s(1.0)
    assert gpu.achieved().clock_mhz == 1410


def test_a_brief_look_ends_with_the_first_clock_that_is_not_reached(time: VirtualTime) -> None:
    slow = simulated(time, switch_latency_s=30.0)
    began_s = time.now_s()
    found = calibrate_briefly(slow, pause=time.pass_s)
    assert (found.up_s, found.down_s, found.unreached) == (None, None, 1)
    assert time.now_s() - began_s < 0.7


def test_a_host_that_looks_too_rarely_tells_nothing(time: VirtualTime) -> None:
    found = calibrate_briefly(simulated(time), pause=lambda _: time.pass_s(0.050))
    assert (found.up_s, found.down_s, found.unreached) == (None, None, 0)


@pytest.mark.parametrize(
    ("total_s", "blur_s", "told"),
    [(0.040, 0.009, True), (0.040, 0.011, False), (0.006, 0.002, True), (None, 0.0, False)],
)
def test_a_latency_is_told_by_looks_that_are_close_enough(
    total_s: float | None, blur_s: float, *, told: bool
) -> None:
    assert Switch(510, 1410, 0.001, total_s, blur_s).told is told


def test_a_brief_look_at_nothing_finds_nothing(time: VirtualTime) -> None:
    assert calibrate_briefly(NullGpu(), pause=time.pass_s) == Calibration(None, None, None, None, None, 0)
