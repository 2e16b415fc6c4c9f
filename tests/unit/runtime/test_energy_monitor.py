"""Rows that the energy watch keeps: changes of the counter, clocks in force, the first error."""

import math
import time
from typing import Any
from unittest.mock import MagicMock

import pytest
from lone_job import NotingGpu
from personality_gpu import Character, PersonalityGpu, Power
from virtual_host import VirtualHost

import perseus_ds
from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError, PerseusError
from perseus_ds.runtime.energy_monitor import EnergyWatch, Temperatures


class CountingGpu(NotingGpu):
    """10 J more at every second, and other clocks and reasons meanwhile."""

    def achieved(self) -> Achieved:
        return Achieved(900 + int(self.time_s), EventReason(1 << int(self.time_s)))


def looking(gpu: NotingGpu) -> EnergyWatch:
    """A watch that looks when a test says so."""
    watch = EnergyWatch(gpu, repeat=MagicMock())
    watch.start()
    return watch


@pytest.fixture
def watch() -> EnergyWatch:
    """The counter changes at 1, 2, ... 8 s; the clock is read at 4 s, at 2.5 s and at 5 s."""
    watch = looking(gpu := CountingGpu())
    for half in range(17):
        gpu.time_s, gpu.counter_j = half / 2, 10.0 * (half // 2)
        watch.look()
    return watch


def test_a_trace_begins_with_the_last_change_before_which_forgetting_keeps(watch: EnergyWatch) -> None:
    assert list(watch.trace(3.5).time_s) == [2.75, 3.75, 4.75, 5.75, 6.75, 7.75]
    assert watch.trace(2.75).time_s[0] == 2.75
    assert watch.trace(0.0).time_s[0] == 0.75
    assert list(watch.trace(99.0).time_s) == [7.75]
    watch.forget(4.5)
    assert list(watch.trace(0.0).time_s) == [3.75, 4.75, 5.75, 6.75, 7.75]
    assert watch.clock_between(0.0, 4.4) == (None, 0)
    watch.forget(100.0)
    assert list(watch.trace(0.0).time_s) == [7.75]


def test_the_clock_between_is_the_median_with_all_reasons(watch: EnergyWatch) -> None:
    assert watch.clock_between(1.0, 5.0) == (903, 0b10100)
    assert watch.clock_between(50.0, 60.0) == (None, 0)


@pytest.mark.parametrize(("period_s", "seen_s"), [(1.01, 1.01), (1.5, 1.0)])
def test_the_period_is_what_was_seen_unless_changes_were_missed(period_s: float, seen_s: float) -> None:
    """1 s is declared: a hundredth more is believed, half as much more is not."""
    watch = looking(gpu := NotingGpu(counter_period_s=1.0))
    assert watch.seen_period_s == 1.0
    for look in range(400):
        gpu.time_s = 0.5 * look
        gpu.counter_j = 10.0 * (gpu.time_s // period_s)
        watch.look()
    assert watch.seen_period_s == pytest.approx(seen_s, rel=3e-3)


def test_a_device_without_a_counter_is_not_watched() -> None:
    watch = EnergyWatch(NotingGpu(counter_period_s=None), repeat=(repeat := MagicMock()))
    watch.start()
    assert watch.period_s is None
    repeat.assert_not_called()
    watch.close()


@pytest.mark.parametrize("error", [DeviceLostError("gone"), OSError("pipe broke")])
def test_the_first_error_is_kept_and_nothing_looked_at_after_it(error: Exception) -> None:
    watch = looking(gpu := NotingGpu())
    for gpu.fails in (error, OSError("another")):
        watch.look()
    assert isinstance(watch.error, PerseusError)
    assert str(error) in str(watch.error)


def test_a_thread_looks_by_itself_until_it_is_closed(host: VirtualHost) -> None:
    watch = watched(host)
    host.sleep(3.0)
    watch.close()
    host.sleep(1.0)
    last_s = watch.latest_look_s
    assert last_s == pytest.approx(3.0, abs=0.1)
    host.sleep(3.0)
    assert watch.latest_look_s == last_s


# The energy that is booked is this GPU's: whatever its counter counts, wherever it stops or begins again.


def busy(now_s: float) -> float:
    """A pipeline's GPU: 600 W at work, 120 W while it waits, some seven times a second."""
    return 600.0 if math.sin(43.0 * now_s) > -0.3 else 120.0


def watched(host: VirtualHost, power: Power = lambda _: 400.0, **character: object) -> EnergyWatch:
    watch = EnergyWatch(PersonalityGpu(host, Character(**character), power), threads=host)
    watch.start()
    return watch


def watts(host: VirtualHost, watch: EnergyWatch, *, for_s: float = 10.0) -> float:
    begun_s = host.now_s() + 1.0
    host.sleep(for_s + 2.0)
    return watch.trace(begun_s).energy_between(begun_s, begun_s + for_s) / for_s


@pytest.mark.parametrize("power", [lambda _: 90.0, lambda _: 650.0, busy])
@pytest.mark.parametrize(
    ("character", "believed", "error"),
    [({"period_s": 0.02}, True, 0.08), ({"period_s": 0.1}, True, 0.08), ({"module_w": 250.0}, False, 0.03)],
    ids=["quick", "slow", "of a module"],
)
def test_a_counter_of_this_gpu_is_believed_and_a_modules_replaced(
    host: VirtualHost, power: Power, character: dict[str, Any], error: float, *, believed: bool
) -> None:
    watch = watched(host, power, **character)
    host.sleep(20.0 if believed else 6.0)
    line = watch.trouble()
    assert (line == "", "integrated" in line) == (believed, not believed)
    assert watch.trouble() == "", "said once"
    mean_w = sum(power(n * 1e-3) for n in range(10_000)) / 10_000
    assert watts(host, watch) == pytest.approx(mean_w, rel=error)


@pytest.mark.parametrize("counts", [0.85, 0.95, 1.05, 1.15])
def test_a_counter_that_differs_by_a_tenth_is_kept_and_said(host: VirtualHost, counts: float) -> None:
    watch = watched(host, counts=counts)
    host.sleep(5.0)
    assert watch.trouble() == "", "a second is too short to accuse it"
    host.sleep(15.0)
    assert (f"{counts:.2f} times" in watch.trouble()) is (abs(counts - 1.0) > 0.1)
    assert watch.trouble() == "", "reported once"
    assert watts(host, watch) == pytest.approx(400.0 * counts, rel=0.01)


@pytest.mark.parametrize(
    ("character", "why"),
    [
        ({"stands_still": True}, "stands still"),
        ({"stops_s": 60.0}, "stands still"),
        ({"shows": lambda counted_j: 1e6 - counted_j}, "steps back"),
        ({"wraps_j": 4000.0}, "steps back"),
        ({"shows": lambda counted_j: counted_j + 1e9 * (counted_j // 4000.0)}, "steps back"),
        ({"shows": lambda _: math.nan}, "stands still"),
    ],
    ids=["stands still", "stops", "counts down", "wraps often", "leaps", "is no number"],
)
@pytest.mark.parametrize("tells_power", [True, False])
def test_a_counter_that_is_none_any_more_is_replaced_or_of_no_use(
    host: VirtualHost, character: dict[str, Any], why: str, *, tells_power: bool
) -> None:
    watch = watched(host, **character, tells_power=tells_power)
    lines = [watch.trouble() for _ in range(80) if host.sleep(1.0) is None]
    [last] = [line for line in lines if why in line]
    assert ("integrated" if tells_power else "no power") in last
    assert (why in watch.useless) is not tells_power
    if tells_power:
        assert watts(host, watch) == pytest.approx(400.0, rel=0.01)


def test_a_counter_that_wraps_now_and_then_is_kept_and_reported_once(host: VirtualHost) -> None:
    watch = watched(host, wraps_j=40_000.0)
    lines = [watch.trouble() for _ in range(250) if host.sleep(1.0) is None]
    [line] = filter(None, lines)
    assert "back" in line
    assert not watch.useless


def test_a_driver_that_hung_for_a_minute_has_no_counter_that_stands_still(host: VirtualHost) -> None:
    watch = watched(host, hangs=(30.0, 90.0))
    host.sleep(120.0)
    assert watch.trouble() == ""


@pytest.mark.parametrize("without", [{"tells_power": False}, {"power_fails": True}])
def test_without_power_the_counter_is_what_there_is(host: VirtualHost, without: dict[str, bool]) -> None:
    watch = watched(host, module_w=250.0, **without)
    host.sleep(6.0)
    assert watch.trouble() == ""
    assert watts(host, watch) == pytest.approx(650.0, rel=0.01)


def test_a_counter_that_wraps_never_gives_energy_back(host: VirtualHost) -> None:
    watch = watched(host, wraps_j=12_000.0)
    seen = []
    for _ in range(31):
        host.sleep(1.0)
        trace = watch.trace(0.0)
        seen += [later - earlier for earlier, later in zip(trace.energy_j, trace.energy_j[1:], strict=False)]
    assert min(seen) > 0.0
    assert watts(host, watch, for_s=3.0) == pytest.approx(400.0, rel=0.02)


def test_one_that_moves_every_millisecond_is_looked_at_every_twenty(host: VirtualHost) -> None:
    gpu = PersonalityGpu(host, Character(period_s=0.001))
    watch = EnergyWatch(gpu, threads=host)
    watch.start()
    host.sleep(20.0)  # its power is read beside it at first
    before = gpu.reads
    host.sleep(10.0)
    assert gpu.reads - before <= 10.0 / 0.02 + 1
    assert watts(host, watch) == pytest.approx(400.0, rel=0.01)


def test_closing_waits_for_no_driver_that_hangs(host: VirtualHost) -> None:
    watch = watched(host, hangs=(2.0, 722.0))
    host.sleep(3.0)
    begun_s = host.now_s()
    watch.close()
    assert host.now_s() - begun_s < 5.0


# Windows of energy that any program measures: joules with their errors, without torch.

POWER_W = 200.0


class SteadyGpu(NotingGpu):
    """Takes the same power all the time; its counter moves every 20 ms."""

    def now_s(self) -> float:
        return time.monotonic()

    def energy_j(self) -> float:
        if self.fails is not None:
            raise self.fails
        return POWER_W * (time.monotonic() // 0.02 * 0.02)

    def power_w(self) -> float:
        return POWER_W


def test_a_window_has_energy_time_and_error() -> None:
    with perseus_ds.EnergyMonitor(SteadyGpu(counter_period_s=0.05)) as monitor:
        begun_s = time.monotonic()
        monitor.begin_window("all")
        monitor.begin_window("first")
        time.sleep(0.2)
        first = monitor.end_window("first")
        time.sleep(0.1)
        whole = monitor.end_window("all")
        passed_s = time.monotonic() - begun_s
        assert monitor.warnings == ()
    assert 0.2 <= first.time_s < whole.time_s <= passed_s
    for used in (first, whole):
        assert 0.0 < used.energy_se_j < 0.5 * used.energy_j
        assert abs(used.energy_j - POWER_W * used.time_s) < 5.0 * used.energy_se_j
        assert used.power_w == pytest.approx(used.energy_j / used.time_s)


def test_names_are_of_open_windows() -> None:
    with perseus_ds.EnergyMonitor(SteadyGpu(counter_period_s=0.05)) as monitor:
        monitor.begin_window("a")
        for name, act in (("a", monitor.begin_window), ("b", monitor.end_window)):
            with pytest.raises(ValueError, match="open"):
                act(name)
        monitor.close()


@pytest.mark.parametrize(
    ("gpu", "error"),
    [(NotingGpu(counter_period_s=None), DeviceUnavailableError), (NotingGpu(), DeviceLostError)],
    ids=["no counter", "lost"],
)
def test_a_gpu_without_energy_is_refused(gpu: NotingGpu, error: type[DeviceError]) -> None:
    gpu.fails = DeviceLostError("gone")
    with pytest.raises(error):
        perseus_ds.EnergyMonitor(gpu)


# A temperature sensor is read for as long as it can be true, and its lies end nothing else.


class SensingGpu(NotingGpu):
    """Shows what a test says, or raises it."""

    shown: float | Exception | None = 50.0

    def temperature_c(self) -> float | None:
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown


def looked(*shown: float | Exception | None) -> Temperatures:
    """Return the temperatures of a watch that reads the sensor with every fifth look."""
    watch = looking(gpu := SensingGpu())
    for second, gpu.shown in enumerate(shown):
        gpu.time_s = float(second)
        for _ in range(5):
            gpu.counter_j += 1.0
            watch.look()
    assert watch.error is None, "a sensor that fails ends no watch"
    assert len(watch.trace(-1.0)) > len(shown)
    return watch.temperatures


def test_the_mean_is_of_a_stretch_of_time() -> None:
    temperatures = looked(50.0, 52.0, 54.0, 60.0)
    assert temperatures.reason == ""
    for since_s, until_s, mean_c in ((1.0, 2.5, 53.0), (9.0, 10.0, None), (2.0, 9.0, 57.0)):
        assert temperatures.mean_c(since_s, until_s) == mean_c


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (None, "none"),
        (0.0, "reads 0"),
        (255.0, "reads 255"),
        (85.5, "jumped"),
        (DeviceLostError("GPU 0: gone"), "gone"),
        (AttributeError("undefined symbol"), "undefined"),
    ],
)
def test_what_cannot_be_is_not_believed_and_says_why(shown: float | Exception | None, reason: str) -> None:
    temperatures = looked(50.0, shown, 51.0)
    assert reason in temperatures.reason
    assert not temperatures.readings
