"""A temperature sensor is read for as long as it can be true, and its lies end nothing else."""

from __future__ import annotations

import pytest
from lone_job import NotingGpu

from perseus_ds.errors import DeviceLostError
from perseus_ds.runtime.energy_monitor import EnergyWatch, Temperatures


class SensingGpu(NotingGpu):
    """Shows what a test says, or raises it."""

    shown: float | Exception | None = 50.0

    def temperature_c(self) -> float | None:
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown


def looked(*shown: float | Exception | None) -> Temperatures:
    """What a watch keeps that reads the sensor with every fifth look."""
    gpu = SensingGpu()
    watch = EnergyWatch(gpu, repeat=lambda _, __: lambda: None)
    for second, gpu.shown in enumerate(shown):
        gpu.time_s = float(second)
        for _ in range(5):
            watch.look()
    return watch.temperatures


def test_the_mean_is_of_a_stretch_of_time() -> None:
    temperatures = looked(50.0, 52.0, 54.0, 60.0)
    assert temperatures.reason == ""
    assert temperatures.mean_c(1.0, 2.5) == 53.0
    assert temperatures.mean_c(9.0, 10.0) is None
    temperatures.forget(2.0)
    assert temperatures.between(0.0, 9.0) == [(2.0, 54.0), (3.0, 60.0)]


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
    assert temperatures.between(0.0, 9.0) == []


def test_a_sensor_that_fails_does_not_end_the_watch() -> None:
    gpu = SensingGpu(counter_period_s=1.0)
    gpu.shown = DeviceLostError("gone")
    watch = EnergyWatch(gpu, repeat=lambda _, __: lambda: None)
    for look in range(20):
        gpu.time_s, gpu.counter_j = 0.5 * look, 10.0 * (look // 2)
        watch.look()
    assert watch.error is None
    assert len(watch.trace(0.0)) > 5
    assert watch.temperatures.reason
