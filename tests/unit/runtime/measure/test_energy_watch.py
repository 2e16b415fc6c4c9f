"""What the watching thread keeps: changes of the counter, the clock in force, the first error."""

from __future__ import annotations

import pytest
from runtime_fakes import NotingGpu

from perseus_ds.device import Achieved
from perseus_ds.device.record import EventReason
from perseus_ds.errors import DeviceLostError, PerseusError
from perseus_ds.runtime.measure.energy_watch import EnergyWatch


@pytest.fixture
def watch() -> EnergyWatch:
    watch = EnergyWatch(NotingGpu())
    watch._changes.extend((float(time_s), 10.0 * time_s) for time_s in range(1, 9))
    watch._clocks.extend(
        (float(time_s), Achieved(900 + time_s, 1, EventReason(1 << time_s))) for time_s in range(1, 6)
    )
    return watch


def test_a_trace_begins_with_the_last_change_before(watch: EnergyWatch) -> None:
    assert list(watch.trace(3.5).time_s) == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert watch.trace(3.0).time_s[0] == 3.0
    assert watch.trace(0.0).time_s[0] == 1.0
    assert list(watch.trace(99.0).time_s) == [8.0]


def test_forgetting_keeps_the_last_change_before(watch: EnergyWatch) -> None:
    watch.forget(4.5)
    assert list(watch.trace(0.0).time_s) == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert watch.clock_between(0.0, 4.4) == (None, 0)
    watch.forget(100.0)
    assert list(watch.trace(0.0).time_s) == [8.0]


def test_the_clock_between_is_the_median_with_all_reasons(watch: EnergyWatch) -> None:
    assert watch.clock_between(2.0, 4.0) == (903, 0b11100)
    assert watch.clock_between(50.0, 60.0) == (None, 0)


def test_a_device_without_a_counter_is_not_watched() -> None:
    watch = EnergyWatch(NotingGpu(counter_period_s=None))
    assert not watch.watching
    watch.start()
    assert not watch._thread.is_alive()
    watch.close()


@pytest.mark.parametrize("error", [DeviceLostError("gone"), OSError("the guard's pipe broke")])
def test_the_first_error_ends_the_thread_and_is_kept(error: Exception) -> None:
    gpu = NotingGpu(counter_period_s=1e-3)
    gpu.fails = error
    watch = EnergyWatch(gpu)
    watch.start()
    watch._thread.join(10.0)
    assert not watch._thread.is_alive()
    assert isinstance(watch.error, PerseusError)
    assert str(error) in str(watch.error)
    watch.close()


def test_closing_ends_the_thread() -> None:
    watch = EnergyWatch(NotingGpu(counter_period_s=1e-3))
    watch.start()
    watch.close()
    assert not watch._thread.is_alive()
    assert watch.error is None
