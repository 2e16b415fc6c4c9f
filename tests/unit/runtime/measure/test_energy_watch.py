"""What the watching thread keeps: changes of the counter, the clock in force, the first error."""

from __future__ import annotations

import threading
import time

import pytest
from lone_job import NotingGpu

from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.errors import DeviceLostError, PerseusError
from perseus_ds.runtime.energy_monitor import EnergyWatch, Look


class Turns:
    """Looks when a test says so."""

    def __init__(self) -> None:
        self.look: Look | None = None
        self.every_s = 0.0

    def __call__(self, every_s: float, look: Look) -> Look:
        self.every_s, self.look = every_s, look
        return self.end

    def end(self) -> None:
        self.look = None


class CountingGpu(NotingGpu):
    """10 J more at every second, and other clocks and reasons meanwhile."""

    def achieved(self) -> Achieved:
        return Achieved(900 + int(self.time_s), 1, EventReason(1 << int(self.time_s)))


@pytest.fixture
def watch() -> EnergyWatch:
    """The counter changes at 1, 2, ... 8 s; the clock is read at 4 s, at 2.5 s and at 5 s."""
    gpu, turns = CountingGpu(), Turns()
    watch = EnergyWatch(gpu, repeat=turns)
    watch.start()
    for half in range(17):
        gpu.time_s, gpu.counter_j = half / 2, 10.0 * (half // 2)
        assert turns.look is not None
        turns.look()
    return watch


def test_a_trace_begins_with_the_last_change_before(watch: EnergyWatch) -> None:
    assert list(watch.trace(3.5).time_s) == [2.75, 3.75, 4.75, 5.75, 6.75, 7.75]
    assert watch.trace(2.75).time_s[0] == 2.75
    assert watch.trace(0.0).time_s[0] == 0.75
    assert list(watch.trace(99.0).time_s) == [7.75]


def test_forgetting_keeps_the_last_change_before(watch: EnergyWatch) -> None:
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
    gpu, turns = NotingGpu(counter_period_s=1.0), Turns()
    watch = EnergyWatch(gpu, repeat=turns)
    watch.start()
    assert watch.seen_period_s == 1.0
    assert turns.look is not None
    for look in range(400):
        gpu.time_s = 0.5 * look
        gpu.counter_j = 10.0 * (gpu.time_s // period_s)
        turns.look()
    assert watch.seen_period_s == pytest.approx(seen_s, rel=3e-3)


def test_a_device_without_a_counter_is_not_watched() -> None:
    turns = Turns()
    watch = EnergyWatch(NotingGpu(counter_period_s=None), repeat=turns)
    assert not watch.watching
    watch.start()
    assert turns.look is None
    watch.close()


@pytest.mark.parametrize("error", [DeviceLostError("gone"), OSError("pipe broke")])
def test_the_first_error_is_kept_and_nothing_looked_at_after_it(error: Exception) -> None:
    gpu, turns = NotingGpu(), Turns()
    watch = EnergyWatch(gpu, repeat=turns)
    watch.start()
    assert turns.look is not None
    gpu.fails = error
    turns.look()
    gpu.fails = OSError("another")
    turns.look()
    assert isinstance(watch.error, PerseusError)
    assert str(error) in str(watch.error)


def test_a_thread_looks_by_itself_until_it_is_closed() -> None:
    gpu = NotingGpu(counter_period_s=1e-3)
    gpu.fails = DeviceLostError("gone")
    watch = EnergyWatch(gpu)
    watch.start()
    deadline = time.monotonic() + 60.0
    while watch.error is None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert watch.error is not None
    watch.close()
    assert not [one for one in threading.enumerate() if one.name == "perseus-energy"]
